"""The parameter service: publishes ad servers' documents and helpers' keys, signed and never changed."""
