"""Tests mirror the source: unit, property, statistical, vectors, integration. Twins are slow on purpose."""
