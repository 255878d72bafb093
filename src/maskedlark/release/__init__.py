"""The only way out for anything that depends on a secret. Run by helpers; the ad server uses its messages.

`release.py` answers queries and steps, with noise; `check_messages.py` says whether reports are valid, by
numbers that tell nothing else.
"""
