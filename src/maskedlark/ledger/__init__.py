"""Durable charges, receipts, recovery and anchors."""
