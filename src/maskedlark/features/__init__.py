"""Columns of a table as byte features: fitted without labels, saved, used again at serving."""

from maskedlark.features.encoder import Encoder
from maskedlark.features.kinds import Boolean, Hashed, OneHot
from maskedlark.features.scaled import Scaled

__all__ = ["Boolean", "Encoder", "Hashed", "OneHot", "Scaled"]
