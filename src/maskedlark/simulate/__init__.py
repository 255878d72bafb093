"""Populations of browsers: how experiments, load tests and the demo get their data; and one's own table."""

from maskedlark.browser.population import Population, processes
from maskedlark.simulate.simulation import Simulation, start

__all__ = ["Population", "Simulation", "processes", "start"]
