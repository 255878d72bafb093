"""The audits of `maskedlark audit`, each a module whose `run` attacks and returns its findings."""
