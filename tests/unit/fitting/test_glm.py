import numpy as np
import pytest
from sklearn import linear_model

from maskedlark.fitting import glm
from maskedlark.fitting.glm import FAMILIES, Problem, Rows
from tests.unit.fitting import cases


def problem(label, count=500):
    features = cases.rows(count)
    phi = np.concatenate([features / 256 - 0.5, np.ones((count, 1))], axis=1)
    truth = cases.labels(features, label)
    targets = np.eye(3)[truth] if label == "softmax" else truth[:, None].astype(float)
    weights = np.random.default_rng(2).uniform(0.2, 1, count)
    return _problem(FAMILIES[label], phi, weights), (targets * weights[:, None]).T @ phi, truth


def _problem(family, phi, weights):
    basis, inner = np.eye(phi.shape[1]), phi.shape[1] - 1
    basis[:-1, :-1] = np.linalg.qr(np.random.default_rng(4).normal(size=(inner, inner)))[0]
    return Problem(family, Rows(phi, weights), basis, weights @ (phi @ basis) ** 2)


@pytest.mark.parametrize("label", FAMILIES)
def test_the_solution_is_flat_and_its_hessian_is_the_slopes(label):
    made, moments, _ = problem(label)
    ridge, phi = np.full(moments.shape, 0.5), made.rows.phi @ made.basis
    moments = moments @ made.basis
    theta = made.solve(moments, ridge)

    def slope(at):
        means = made.family.mean(phi @ at.T) * made.rows.weights[:, None]
        return means.T @ phi - moments + ridge * at

    assert np.abs(slope(theta)).max() < 1e-3
    turned, step = Rows(phi, made.rows.clips), 1e-5
    hessian = glm.hessian(made.family, turned, theta)
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
        columns, weights = made.rows.phi[:, :-1], made.rows.weights
        peer.fit(columns, truth, sample_weight=weights)
        alpha = 0.001 * weights.sum() if label == "poisson" else 0.5
        ridge = np.full(moments.shape, alpha)
        ridge[:, -1] = 0.0
        theta = made.solve(moments @ made.basis, ridge) @ made.basis.T
        means = made.family.mean(made.rows.phi @ theta.T)
        expected = peer.predict(columns)[:, None] if label == "poisson" else None
        if expected is None:
            expected = peer.predict_proba(columns)
            expected = expected[:, 1:] if label == "logistic" else expected
        np.testing.assert_allclose(means, expected, atol=2e-4)


def test_moments_out_of_range_by_noise_have_a_solution():
    for label in FAMILIES:
        made, moments, _ = problem(label, 50)
        theta = made.solve(moments * -3, np.full(moments.shape, 1.0))
        assert np.isfinite(theta).all()
    assert np.isfinite(glm.POISSON.value(np.array([[1e9]]))).all()
