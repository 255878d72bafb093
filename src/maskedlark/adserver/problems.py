"""How the ad server refuses a whole request: as every service does."""

from maskedlark.web.answers import install

__all__ = ["install"]
