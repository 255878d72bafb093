"""A check of the tests: what they must not let through, broken on purpose, one edit at a time."""
