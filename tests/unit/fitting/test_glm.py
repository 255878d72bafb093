import numpy as np
import pytest
from sklearn import linear_model

from maskedlark.fitting import glm
from maskedlark.fitting.glm import FAMILIES, Problem
from tests.unit.fitting import cases


def problem(label, count=500):
    features = cases.rows(count)
    phi = np.concatenate([features / 256 - 0.5, np.ones((count, 1))], axis=1)
    truth = cases.labels(features, label)
    targets = np.eye(3)[truth] if label == "softmax" else truth[:, None].astype(float)
    weights = np.random.default_rng(2).uniform(0.2, 1, count)
    return Problem(FAMILIES[label], phi, weights), (targets * weights[:, None]).T @ phi, truth


@pytest.mark.parametrize("label", FAMILIES)
def test_the_solution_is_flat_and_its_hessian_is_the_slopes(label):
    made, moments, _ = problem(label)
    ridge = np.full(moments.shape, 0.5)
    theta = made.solve(moments, ridge)

    def slope(at):
        means = made.family.mean(made.phi @ at.T) * made.weights[:, None]
        return means.T @ made.phi - moments + ridge * at

    assert np.abs(slope(theta)).max() < 1e-3
    hessian, step = made.hessian(theta), 1e-5
    for place in range(0, theta.size, 5):
        moved = theta.copy().ravel()
        moved[place] += step
        numeric = (slope(moved.reshape(theta.shape)) - slope(theta)).ravel() / step
        numeric[place] -= 0.5
        np.testing.assert_allclose(hessian[place], numeric, atol=1e-2)


@pytest.mark.parametrize("label", FAMILIES)
def test_values_slopes_and_links_go_together(label):
    family, z = FAMILIES[label], np.linspace(-2, 2, 5)[:, None]
    z = np.concatenate([z, -z, z / 2], axis=1) if label == "softmax" else z
    for place in range(z.shape[1]):
        step = np.eye(z.shape[1])[place] * 1e-6
        numeric = (family.value(z + step) - family.value(z - step)) / 2e-6
        np.testing.assert_allclose(family.mean(z)[:, place], numeric, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(family.mean(family.link(family.mean(z))), family.mean(z), rtol=1e-6)


def test_it_is_scikit_learns_model_on_clear_labels():
    for label, peer in (
        ("logistic", linear_model.LogisticRegression(C=2.0, tol=1e-8, max_iter=1000)),
        ("softmax", linear_model.LogisticRegression(C=2.0, tol=1e-8, max_iter=1000)),
        ("poisson", linear_model.PoissonRegressor(alpha=0.001, tol=1e-8, max_iter=1000)),
    ):
        made, moments, truth = problem(label)
        peer.fit(made.phi[:, :-1], truth, sample_weight=made.weights)
        alpha = 0.001 * made.weights.sum() if label == "poisson" else 0.5
        ridge = np.full(moments.shape, alpha)
        ridge[:, -1] = 0.0
        theta = made.solve(moments, ridge)
        means = made.family.mean(made.phi @ theta.T)
        expected = peer.predict(made.phi[:, :-1])[:, None] if label == "poisson" else None
        if expected is None:
            expected = peer.predict_proba(made.phi[:, :-1])
            expected = expected[:, 1:] if label == "logistic" else expected
        np.testing.assert_allclose(means, expected, atol=2e-4)


def test_moments_out_of_range_by_noise_have_a_solution():
    for label in FAMILIES:
        made, moments, _ = problem(label, 50)
        theta = made.solve(moments * -3, np.full(moments.shape, 1.0))
        assert np.isfinite(theta).all()
    assert np.isfinite(glm.POISSON.value(np.array([[1e9]]))).all()
