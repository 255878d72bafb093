"""What is declared in public, and how it is kept."""
