"""The algorithms of the Masked LARk paper, with two helpers. To run it: python examples/paper.py

A browser splits its secret into two shares, one for each helper. Each share alone is a random number; both
add up to the secret. Helpers only add shares up, and multiply them by numbers that both know. So their two
answers add up to the answer for the secrets. Left out: encryption, and a limit for the ε of many answers.
"""

import secrets
from collections.abc import Callable

import numpy as np

P = 2**61 - 1  # Shares are the numbers 0 … P - 1. After P - 1 comes 0 again, as on a clock: that is "% P".
K, EPSILON = 100, 1.0  # Helpers answer for at least K people, and hide each of them in noise.
BOUND, UNIT = 1, 2**20  # Absolute values of a gradient sum to at most BOUND, and are counted in 1 / UNIT.


def share(secret: int) -> tuple[int, int]:
    """Browser, algorithm 1. Whatever the secret is, each share alone is equally likely to be any number."""
    share_0 = secrets.randbelow(P)  # Drawn without looking at the secret.
    return share_0, (secret - share_0) % P  # The secret, turned on the clock by a random angle.


def mask(label: int) -> list[tuple[int, int]]:
    """Browser, section 4.1: shares of 1 for its own label, and of 0 for the other. Both look random."""
    return [share(1 if candidate == label else 0) for candidate in (0, 1)]


def release(total: np.ndarray, people: int, sensitivity: int) -> np.ndarray:
    """Helper: adds Laplace noise of its own. One person changes the true total by at most `sensitivity`."""
    if people < K:
        raise ValueError(f"{people} people are fewer than K = {K}")
    draw = secrets.SystemRandom().expovariate  # Simplified: floats have gaps, so the package draws integers.
    return (total + [round(draw(EPSILON / sensitivity) - draw(EPSILON / sensitivity)) for _ in total]) % P


def private_sum(shares: np.ndarray) -> np.ndarray:
    """Helper, algorithm 2: the sum of its shares is its share of the sum. One person changes that by 1."""
    return release(np.array([sum(shares)], dtype=object), len(shares), sensitivity=1)


def masked_sum(f: Callable[..., np.ndarray], people: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Helper, equation 1: its share of the sum of f(x, label) over people whose labels it does not know.
    helper 0:         a0 * f(x, 0)  +         b0 * f(x, 1)      a0, b0: its masks of label 0 and of label 1
    helper 1:         a1 * f(x, 0)  +         b1 * f(x, 1)
    together:  (a0 + a1) * f(x, 0)  +  (b0 + b1) * f(x, 1)  =  0 * f(x, 0) + 1 * f(x, 1), if the label is 1
    """
    every = [own[label] * f(x, label) for x, own in zip(people, masks, strict=True) for label in (0, 1)]
    return sum(every, start=np.array(0)) % P


def gradient(weights: np.ndarray, x: np.ndarray, label: int) -> np.ndarray:
    """What trains a model: the gradient of the logistic loss. In whole numbers, the same at both helpers."""
    row = (1 / (1 + np.exp(-weights @ x)) - label) * x  # Simplified: floats may differ between machines.
    row = row / max(1, abs(row).sum() / BOUND)  # Before the mask: both helpers must mask the same row.
    return np.array([int(number * UNIT) for number in row], dtype=object)


def private_gradient(weights: np.ndarray, people: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Helper, algorithm 3: its share of everybody's gradient. Another label can reverse one: 2 * BOUND."""
    total = masked_sum(lambda x, label: gradient(weights, x, label), people, masks)
    return release(total, len(people), 2 * BOUND * UNIT)


def combine(answer_0: np.ndarray, answer_1: np.ndarray) -> np.ndarray:
    """Ad server: adds the helpers' answers. The upper half of the clock is the negative numbers."""
    return np.array((answer_0 + answer_1 + P // 2) % P - P // 2)


if __name__ == "__main__":
    people = np.array([[1, secrets.randbelow(100) / 100] for _ in range(1000)])  # Helpers may see these,
    bought = [int(secrets.randbelow(200) < 100 * x[1]) for x in people]  # but not these: they are secret.
    shares = np.array([share(label) for label in bought], dtype=object)  # Column 0 is sent to helper 0.
    masks = np.array([mask(label) for label in bought], dtype=object)
    print(f"One secret is {bought[0]}. Helper 0 gets {shares[0, 0]}, helper 1 gets {shares[0, 1]}.")
    sums = [private_sum(shares[:, helper])[0] for helper in (0, 1)]
    print(f"They answer {sums[0]} and {sums[1]}: private sum {combine(*sums)}, true sum {sum(bought)}.")
    gradients = [private_gradient(np.zeros(2), people, masks[:, :, helper]) for helper in (0, 1)]
    truth = [gradient(np.zeros(2), x, label) for x, label in zip(people, bought, strict=True)]
    print("Masked gradient:", combine(*gradients) // UNIT, " In the clear:", sum(truth) // UNIT)
