"""What parties send each other: strict messages, sealed payloads, signed keys. Run by every party."""
