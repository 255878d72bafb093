"""Fixtures that every test may name."""

from tests.databases import _postgresql, database_url, postgresql_url, sqlite_url

__all__ = ["_postgresql", "database_url", "postgresql_url", "sqlite_url"]
