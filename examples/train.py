"""A PyTorch model, trained on labels that no party has: python examples/train.py

All parties run in this process. With services, `training(…)` of `maskedlark.training.Client` does the same.
"""

import numpy as np
import torch

from maskedlark.clock import SystemClock
from maskedlark.randomness import SystemRandomness
from maskedlark.training.begin import begin
from maskedlark.workflow import Workflow

SETTINGS = """
k = 100
budget = {epsilon = 8.0, delta = 1e-5}
training = {adserver = {epsilon = 2.0, delta = 1e-6}, coalition = {epsilon = 8.0, delta = 1e-6}}
mechanisms.gradient = {kind = "gaussian", noise_floor = 0.5}
models.purchase = {columns = [{kind = "bytes", count = 4}], gradient_bound = 1.0}
"""

# 3,000 people saw an ad. The ad server and helpers have their features, but not who bought.
rng = np.random.default_rng()
features = rng.integers(0, 256, (3000, 4)).astype(np.uint8)
bought = features @ [2, 1, -1, -2] > rng.normal(0, 100, 3000)

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
with Workflow.declared(SETTINGS, 2, SystemClock(), SystemRandomness()) as workflow:
    workflow.make_training_dataset("november", "purchase", features, [bought])
    run = begin(workflow, model, loss="bce", tag="purchase", steps=40, sampling_rate=0.25, epsilon=2)
    print(run.plan())  # What it costs, and how much noise there is.
    for step in run:
        optimizer.zero_grad()
        step.backward()  # Every param.grad is the private gradient.
        optimizer.step()
right = (model(torch.tensor(features) / 256)[:, 0] > 0).numpy() == bought
print(f"The model is right about {right.mean():.1%} of all people, which no party can tell.")
