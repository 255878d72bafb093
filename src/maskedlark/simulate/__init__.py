"""Simulated browsers and local services, for the demo, experiments, load tests, and a user's own table."""

from maskedlark.browser.population import Population, processes
from maskedlark.simulate.simulation import Simulation, start

__all__ = ["Population", "Simulation", "processes", "start"]
