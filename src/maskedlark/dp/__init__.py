"""Differential privacy: noise on integers, accounting, calibration, intervals. Run by helpers and others."""
