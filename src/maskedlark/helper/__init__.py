"""The helper: reduces many reports to a share of a private answer. It is the only party that opens them."""
