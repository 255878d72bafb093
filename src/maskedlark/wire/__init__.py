"""What crosses a line between parties: strict messages, sealed payloads, signed keys."""
