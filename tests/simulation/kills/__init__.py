"""Real processes, really killed: what every party does while one of them is ended as a power cut would."""
