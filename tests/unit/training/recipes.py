"""A run's TOML and its model's file, as users write them."""

from tests.unit.training.cases import FEATURES

RUN = """
adserver = "adserver.toml"
tag = "visits"
model = "model.py:build"
loss = "bce"
steps = 4
batches = 2
noise = 0.5
delta = 1e-5
out = "model.pt"
"""
STEPPING = 'optimizer = {name = "Adam", lr = 0.01, betas = [0.8, 0.99]}\n'
BUILD = f"""
from torch import nn

def build():
    return nn.Sequential(nn.Linear({FEATURES}, 5), nn.ReLU(), nn.Linear(5, 1))

def nothing():
    return 3

def fails():
    raise ValueError("no GPU here")
"""
