"""The algorithms of the Masked LARk paper, with two helpers. To run it: python examples/paper.py

A browser splits its secret into two shares, one for each helper. Each share alone is a random number; both
add up to the secret. Helpers add their shares up, and multiply them by numbers that both know. So their two
answers add up to the right answer, and nobody sees a secret unless both helpers put their shares together.
Left out: encryption, proof that reports and helpers are honest, a budget for many answers, exact arithmetic.
"""

import secrets
from collections.abc import Callable

import numpy as np

P = 2**61 - 1  # Shares are the numbers 0 … P - 1. After P - 1 comes 0 again, as on a clock: that is "% P".
K, EPSILON = 100, 1.0  # An answer is about K people or more. With a smaller ε, more noise hides each of them.
BOUND, STEPS = 1, 2**20  # A gradient's absolute values add up to BOUND at most. The unit is 1 / STEPS.


def share(secret: int) -> tuple[int, int]:
    """Browser, algorithm 1. Whatever the secret is, each share alone is equally likely to be any number."""
    share_0 = secrets.randbelow(P)  # Drawn without looking at the secret.
    return share_0, (secret - share_0) % P  # Turned back on the clock by a random angle: just as random.


def mask(label: int) -> list[tuple[int, int]]:
    """Browser, section 4.1: shares of 1 for its own label, and of 0 for the other, to each helper."""
    return [share(1 if candidate == label else 0) for candidate in (0, 1)]


def release(share_of_answer: np.ndarray, people: int, sensitivity: int) -> np.ndarray:
    """Helper: adds noise of its own. One person changes the right answer by `sensitivity` at most."""
    if people < K:
        raise ValueError(f"{people} people are fewer than K = {K}")
    draw, rate = secrets.SystemRandom().expovariate, EPSILON / sensitivity
    return (share_of_answer + [round(draw(rate) - draw(rate)) for _ in share_of_answer]) % P  # Laplace's law.


def private_sum(shares: np.ndarray) -> np.ndarray:
    """Helper, algorithm 2: the sum of its shares is its share of the sum. One person adds 0 or 1 to that."""
    return release(np.array([sum(shares)], dtype=object), len(shares), sensitivity=1)


def masked_sum(f: Callable[..., np.ndarray], people: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Helper, equation 1: its share of the sum of f(x, label) over people whose labels it does not know.
    helper 0:         a0 * f(x, 0)  +         b0 * f(x, 1)      a, b: shares of the masks of labels 0 and 1
    helper 1:         a1 * f(x, 0)  +         b1 * f(x, 1)
    together:  (a0 + a1) * f(x, 0)  +  (b0 + b1) * f(x, 1)  =  0 * f(x, 0) + 1 * f(x, 1), if the label is 1
    """
    return sum((a * f(x, 0) + b * f(x, 1) for x, (a, b) in zip(people, masks, strict=True)), np.array(0)) % P


def gradient(weights: np.ndarray, x: np.ndarray, label: int) -> np.ndarray:
    """A person's gradient of the logistic loss. Whole numbers: if helpers' differ, shares do not cancel."""
    row = (1 / (1 + np.exp(-weights @ x)) - label) * x
    row = row / max(1, abs(row).sum() / BOUND)  # Cut here: once it is masked, nobody sees how long it is.
    return np.array([int(number * STEPS) for number in row], dtype=object)


def private_gradient(weights: np.ndarray, people: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Helper, algorithm 3: its share of the sum of gradients. With another label, one may be reversed."""
    total = masked_sum(lambda x, label: gradient(weights, x, label), people, masks)
    return release(total, len(people), sensitivity=2 * BOUND * STEPS)


def combine(answer_0: np.ndarray, answer_1: np.ndarray) -> np.ndarray:
    """Ad server: adds the helpers' answers. The upper half of the clock is the negative numbers."""
    return np.array((answer_0 + answer_1 + P // 2) % P - P // 2)


if __name__ == "__main__":
    people = np.array([[1, secrets.randbelow(100) / 100] for _ in range(1000)])  # Helpers see these features.
    bought = [int(secrets.randbelow(200) < 100 * x[1]) for x in people]  # These labels are secret.
    shares = np.array([share(label) for label in bought], dtype=object)  # By person and helper.
    masks = np.array([mask(label) for label in bought], dtype=object)  # By person, label and helper.
    print(f"One secret is {bought[0]}. Helper 0 gets {shares[0, 0]}, helper 1 gets {shares[0, 1]}.")
    sums = [private_sum(shares[:, helper])[0] for helper in (0, 1)]
    print(f"They answer {sums[0]} and {sums[1]}: private sum {combine(*sums)}, true sum {sum(bought)}.")
    halves = [private_gradient(np.zeros(2), people, masks[:, :, helper]) for helper in (0, 1)]
    truth = sum(gradient(np.zeros(2), x, label) for x, label in zip(people, bought, strict=True))
    print("Private gradient:", combine(*halves) // STEPS, " In the clear:", truth // STEPS)
