import numpy as np
import pytest

from maskedlark.fitting import glm, prior


def released(family, theta, noise, count=4000, seed=0):
    """Moments of labels at these coefficients, of independent columns of falling variance."""
    rng = np.random.default_rng(seed)
    width = len(theta)
    phi = rng.normal(size=(count, width)) * np.linspace(1, 0.2, width)
    phi = np.concatenate([phi, np.ones((count, 1))], axis=1)
    means = family.mean((phi[:, :-1] @ theta - 1)[:, None])[:, 0]
    drawn = {
        "logistic": lambda: rng.random(count) < means,
        "poisson": lambda: rng.poisson(means),
        "least squares": lambda: means + rng.normal(size=count),
    }[family.name]().astype(float)
    moments = (drawn @ phi)[None] + rng.normal(0, noise, (1, width + 1))
    rows = glm.Rows(phi, np.ones(count))
    return rows, phi.sum(axis=0), moments


@pytest.mark.parametrize("family", [glm.LOGISTIC, glm.POISSON, glm.LEAST_SQUARES], ids=lambda each: each.name)
def test_it_is_better_than_no_ridge_and_about_as_good_as_the_best(family):
    theta = np.random.default_rng(3).normal(0, 0.3, 40)
    noise = 600.0 if family is glm.LEAST_SQUARES else 150.0
    rows, sums, moments = released(family, theta, noise)
    problem = glm.Problem(family, rows, np.eye(41), (rows.phi**2).sum(axis=0))

    def error(ridge):
        return float((problem.solve(moments, ridge)[0, :-1] - theta) ** 2 @ rows.phi.var(axis=0)[:-1])

    chosen = error(prior.ridge(family, rows, sums, moments, noise, 10.0))
    flat = [np.append(np.full(40, each), prior.INTERCEPT)[None] for each in np.geomspace(1, 1e6, 30)]
    assert chosen < 0.7 * error(flat[0])
    assert chosen < 1.4 * min(map(error, flat))


def test_without_signal_all_is_shrunk_and_without_noise_little_is():
    rows, sums, moments = released(glm.LOGISTIC, np.zeros(40), 300.0)
    nothing = prior.ridge(glm.LOGISTIC, rows, sums, moments, 300.0, 1.0)
    curve = (rows.phi**2).sum(axis=0) * 0.2
    assert (nothing[0, :-1] > 5 * curve[:-1]).all()
    rows, sums, moments = released(glm.LOGISTIC, np.full(40, 0.5), 0.0)
    all_of_it = prior.ridge(glm.LOGISTIC, rows, sums, moments, 0.0, 1.0)
    assert np.median(all_of_it[0, :-1] / curve[:-1]) < 0.1
    assert nothing[0, -1] == pytest.approx(all_of_it[0, -1], rel=0.5)
