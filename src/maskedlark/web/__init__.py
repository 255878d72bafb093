"""What all parties share: HTTP, TLS, configuration, key files, durable files, logs and metrics."""
