"""The `maskedlark` command."""
