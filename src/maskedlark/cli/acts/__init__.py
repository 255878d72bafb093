"""The acts of the demo, one a file: people, what is declared, reporting, measuring, training, attacks."""
