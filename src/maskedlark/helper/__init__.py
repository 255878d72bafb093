"""The helper, run by its operator: opens reports, and reduces many to a share of a private answer."""
