"""Fixtures that every test may name, and settings that hold for all."""

from hypothesis import settings

from tests.databases import _postgresql, database_url, postgresql_url, sqlite_url

__all__ = ["_postgresql", "database_url", "postgresql_url", "sqlite_url"]

# No assertion is about time: on a busy machine a deadline would be one.
settings.register_profile("maskedlark", deadline=None)
settings.load_profile("maskedlark")
