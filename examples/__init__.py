"""What to copy: the library used on real data, from beginning to end."""
