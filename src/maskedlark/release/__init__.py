"""The only way out for anything that depends on a secret. Run by helpers; the ad server uses its messages."""
