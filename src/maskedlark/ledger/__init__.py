"""Durable charges, receipts and sessions, run by helpers; and the verification of receipts, run by anyone."""
