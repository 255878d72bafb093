"""From a release to a fitted model: weights of rows, ridge, solution, errors. Run by the ad server."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from maskedlark.fitting import glm, prior
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.glm import Problem, Rows
from maskedlark.fitting.maps import Floats
from maskedlark.fitting.moments_request import MomentsRequest, real_rows
from maskedlark.training.public_rows import real_error

ENOUGH = 20_000
"""So many rows tell curvatures: only the solution needs all."""
_BLOCK = 4096


def fit(request: MomentsRequest, moments: Floats, deviation: float, ridge: float | None) -> FittedModel:
    """Fit to moments (outputs, width) with noise of this deviation. `ridge` None: by empirical Bayes."""
    family, map_ = request.family, request.chosen.map
    rows = Rows(*real_rows(request.phi, request.rows), request.real_records / len(request.rows))
    some = slice(None, None, -(-len(rows.phi) // ENOUGH))
    basis = _basis(rows.phi[some], rows.clips[some])
    few = Rows(rows.phi[some] @ basis, rows.clips[some], request.real_records / len(rows.phi[some]))
    sums = rows.weights @ rows.phi @ basis
    turned = glm.consistent(family, moments @ basis, sums)
    if ridge is None:
        ridges = prior.ridge(family, few, sums, turned, deviation, request.spread)
    else:
        ridges = np.full_like(turned, ridge)
        ridges[:, -1] = prior.INTERCEPT
    problem = Problem(family, rows, basis, few.weights @ few.phi**2)
    theta = problem.solve(turned, ridges)
    solved = problem.is_solved(theta, turned, ridges)
    if not solved:
        warnings.warn(
            "no solution was found: noise probably moved the moments to where no finite coefficients fit. "
            "These say nothing, and have no intervals: fit with a larger epsilon, or give a larger ridge",
            ConvergenceWarning,
            stacklevel=4,
        )
    whole = theta @ basis.T
    coefficients, intercept = map_.named(whole[:, :-1], whole[:, -1])
    errors = np.full((len(theta), len(map_.names) + 1), np.nan)
    if request.has_intervals and solved:
        root = _error_root(request, few, theta, ridges, deviation)
        back = root.reshape(*theta.shape, -1).transpose(2, 0, 1) @ basis.T
        named, constant = map_.named(back[..., :-1], back[..., -1])
        errors = np.sqrt((np.concatenate([named, constant[..., None]], axis=-1) ** 2).sum(axis=0))
    settings = request.settings
    return FittedModel(
        family,
        settings.tag,
        settings.encoder,
        request.phi,
        whole,
        map_.names,
        coefficients,
        intercept,
        errors,
        settings.label,
    )


def _basis(phi: Floats, clips: Floats) -> Floats:
    """Orthogonal, with the constant apart: the label-free curvature of the mean model is diagonal in it."""
    inner, basis = phi[:, :-1], np.eye(phi.shape[1])
    centred = (inner - clips @ inner / clips.sum()) * np.sqrt(clips)[:, None]
    basis[:-1, :-1] = np.linalg.eigh(centred.T @ centred)[1]
    return basis


def _error_root(
    request: MomentsRequest, rows: Rows, theta: Floats, ridges: Floats, deviation: float
) -> Floats:
    """A root of θ's covariance, (outputs · width, any): by noise, rows and records that differ, and rounding.

    Of θ on clear labels and the helpers' own real records, at the same ridge: the slope that is set to 0 is
    off by noise, by how many of the records are real, by which of the rows they are, and by browsers that
    round labels at random: by as much as they may.
    """
    size, family = theta.size, request.family
    curve = glm.hessian(family, rows, theta) + np.diag(ridges.ravel())
    slopes = family.mean(rows.phi @ theta.T) * rows.clips[:, None]
    mean = (slopes.T @ rows.phi / len(rows.phi)).ravel()
    real, own = request.real_records, len(request.rows)
    counted = real * real_error(request.fake_rate, real) * mean
    noise = np.eye(size).reshape(*theta.shape, size)
    noise = glm.consistent(family, noise, np.zeros(noise.shape[1:])).reshape(size, size)
    parts = [deviation * noise, counted[:, None]]
    if real != own:
        chance = real * np.sqrt(abs(1 / own - 1 / max(real, 1.0)))
        parts.append(glm.root(_covariance(slopes, rows.phi, mean)) * chance)
    if request.rounding:
        parts.append(rows.rounding_root(rows.phi, request.rounding))
    return np.asarray(np.linalg.solve(curve, np.concatenate(parts, axis=1)), np.float64)


def _covariance(slopes: Floats, phi: Floats, mean: Floats) -> Floats:
    """Of the rows' slopes (outputs · width), block by block: all rows at once would take gigabytes."""
    total = np.zeros((len(mean), len(mean)))
    for start in range(0, len(phi), _BLOCK):
        some = slice(start, start + _BLOCK)
        each = (slopes[some, :, None] * phi[some, None, :]).reshape(-1, len(mean)) - mean
        total += each.T @ each
    return total / len(phi)
