"""The demo's steps, each a module with `run`: reporting, measuring, training, party_views; and their data."""
