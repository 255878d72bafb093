"""Differential privacy: noise on integers, accounting, calibration, intervals."""
