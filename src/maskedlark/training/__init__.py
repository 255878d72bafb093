"""The PyTorch side of the ad server: a user's model and loop, gradients from helpers, labels with nobody."""
