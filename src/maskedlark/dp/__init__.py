"""Noise on integers, privacy accounting, calibration, intervals. Run by helpers, planners and auditors."""
