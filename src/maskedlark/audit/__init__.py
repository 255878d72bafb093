"""Attacks on what each party sees, to be seen winning against naive designs and failing against ours."""
