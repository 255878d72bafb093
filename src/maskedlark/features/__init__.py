"""Columns of a table as byte features: fitted without labels, saved, used again at serving."""

from maskedlark.features.boolean import Boolean
from maskedlark.features.encoder import Encoder
from maskedlark.features.hashed import Hashed
from maskedlark.features.one_hot import OneHot
from maskedlark.features.scaled import Scaled

__all__ = ["Boolean", "Encoder", "Hashed", "OneHot", "Scaled"]
