"""The ad server's encoder of columns as byte features: fitted without labels, saved, reused at serving."""

from maskedlark.features.encoder import Encoder
from maskedlark.features.kinds import Boolean, Hashed, OneHot
from maskedlark.features.scaled import Scaled

__all__ = ["Boolean", "Encoder", "Hashed", "OneHot", "Scaled"]
