"""Attacks on what each party sees, which win against naive designs and fail here. Run by auditors."""
