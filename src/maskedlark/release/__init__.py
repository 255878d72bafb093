"""The only way out for anything that depends on a secret."""
