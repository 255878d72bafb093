"""`python -m maskedlark` is the `maskedlark` command."""

from maskedlark.cli import app

app()
