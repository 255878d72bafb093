"""Databases by URL: SQLite and PostgreSQL with one interface, and copies of them. Run by every service."""
