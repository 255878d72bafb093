"""Local noise as distributions, not draws: Laplace's CDF and randomised response in 160 digits."""

from decimal import Decimal, localcontext

DIGITS = 160


def exponential(x: Decimal) -> Decimal:
    """e^x by its series, after halving x until it is small."""
    halvings = 0
    while abs(x) > Decimal("0.01"):
        x, halvings = x / 2, halvings + 1
    answer, term, n = Decimal(1), Decimal(1), 1
    while abs(term) > Decimal(10) ** -DIGITS:
        term = term * x / n
        answer, n = answer + term, n + 1
    for _ in range(halvings):
        answer *= answer
    return answer


def laplace_cdf(t: Decimal, scale: Decimal) -> Decimal:
    return exponential(t / scale) / 2 if t < 0 else 1 - exponential(-t / scale) / 2


def byte(truth: int, epsilon: float, sensitivity: float) -> list[Decimal]:
    """The probability of each of the 256 bytes that a feature can become."""
    with localcontext(prec=DIGITS + 20):
        scale = Decimal(sensitivity) / Decimal(epsilon)
        half = Decimal("0.5")
        upto = [laplace_cdf(n + half - truth, scale) for n in range(255)]
        return [b - a for a, b in zip([Decimal(0), *upto], [*upto, Decimal(1)], strict=True)]


def response(truth: int, size: int, epsilon: float) -> list[Decimal]:
    """The probability of each place of a label space after randomised response."""
    with localcontext(prec=DIGITS + 20):
        weights = [exponential(Decimal(epsilon)) if place == truth else Decimal(1) for place in range(size)]
        return [weight / sum(weights) for weight in weights]
