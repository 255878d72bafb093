"""Populations of browsers: how experiments, load tests and the demo get their data."""

from maskedlark.simulate.population import Population, processes

__all__ = ["Population", "processes"]
