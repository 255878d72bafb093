"""From a release to a fitted model: weights of rows, ridge, solution, errors. Run by the ad server."""

from dataclasses import dataclass

import numpy as np

from maskedlark.fitting import prior
from maskedlark.fitting.asking import Question, real_rows
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.glm import Problem
from maskedlark.fitting.maps import Floats

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Rotated:
    """Rows in coordinates in which the label-free curvature of the mean model is diagonal."""

    phi: Floats
    """With a last column of ones."""
    clips: Floats
    behind: float
    """How many real records of the helpers stand behind one row."""
    rotation: Floats
    """(width, width) without the constant, orthogonal."""

    @classmethod
    def of(cls, question: Question) -> "Rotated":
        """The question's own rows."""
        phi, clips = real_rows(question.phi, question.rows)
        inner = phi[:, :-1]
        centred = (inner - clips @ inner / clips.sum()) * np.sqrt(clips)[:, None]
        rotation = np.linalg.eigh(centred.T @ centred)[1]
        phi[:, :-1] = inner @ rotation
        return cls(phi, clips, question.real_records / len(phi), rotation)

    def turn(self, numbers: Floats) -> Floats:
        """Moments or coefficients of φ (…, width + 1) in these coordinates."""
        return np.concatenate([numbers[..., :-1] @ self.rotation, numbers[..., -1:]], axis=-1)

    def turn_back(self, numbers: Floats) -> Floats:
        """The inverse."""
        return np.concatenate([numbers[..., :-1] @ self.rotation.T, numbers[..., -1:]], axis=-1)


def fit(question: Question, moments: Floats, deviation: float, ridge: float | None) -> FittedModel:
    """Fit to moments (outputs, width) with noise of this deviation. `ridge` None: by empirical Bayes."""
    rows, family = Rotated.of(question), question.family
    weights = rows.clips * rows.behind
    turned = rows.turn(moments)
    if ridge is None:
        ridges = prior.ridge(family, rows.phi, weights, rows.clips, turned, deviation, question.spread)
    else:
        ridges = np.full_like(turned, ridge)
        ridges[:, -1] = 0.0
    problem = Problem(family, rows.phi, weights)
    theta = problem.solve(turned, ridges)
    root = _error_root(question, problem, rows, theta, ridges, deviation)
    map_ = question.chosen.map
    whole = rows.turn_back(theta)
    coefficients, intercept = map_.named(whole[:, :-1], whole[:, -1])
    back = rows.turn_back(root.reshape(*theta.shape, -1).transpose(2, 0, 1))
    named, constant = map_.named(back[..., :-1], back[..., -1])
    errors = np.sqrt((np.concatenate([named, constant[..., None]], axis=-1) ** 2).sum(axis=0))
    settings = question.settings
    return FittedModel(
        family,
        settings.tag,
        settings.encoder,
        question.phi,
        whole,
        map_.names,
        coefficients,
        intercept,
        errors,
    )


def _error_root(
    question: Question, problem: Problem, rows: Rotated, theta: Floats, ridges: Floats, deviation: float
) -> Floats:
    """A root of θ's covariance, (outputs · width, any): by noise, and by rows and records that differ.

    Of θ on clear labels and the helpers' own real records, at the same ridge: the slope that is set to 0 is
    off by noise, by how many of the records are real, and by which of the rows they are.
    """
    size = theta.size
    hessian = problem.hessian(theta) + np.diag(ridges.ravel())
    slopes = problem.family.mean(rows.phi @ theta.T) * rows.clips[:, None]
    mean = (slopes.T @ rows.phi / len(rows.phi)).ravel()
    real, rate, own = question.real_records, question.fake_rate, len(rows.phi)
    counted = np.sqrt(real * rate * (1 - rate)) / (1 + rate) * mean
    parts = [deviation * np.eye(size), counted[:, None]]
    if real != own:
        chance = real * np.sqrt(abs(1 / own - 1 / max(real, 1.0)))
        values, vectors = np.linalg.eigh(_covariance(slopes, rows.phi, mean))
        parts.append(vectors * np.sqrt(np.maximum(values, 0)) * chance)
    return np.linalg.solve(hessian, np.concatenate(parts, axis=1))


def _covariance(slopes: Floats, phi: Floats, mean: Floats) -> Floats:
    """Of the rows' slopes (outputs · width), block by block: all rows at once would take gigabytes."""
    total = np.zeros((len(mean), len(mean)))
    for start in range(0, len(phi), _BLOCK):
        some = slice(start, start + _BLOCK)
        each = (slopes[some, :, None] * phi[some, None, :]).reshape(-1, len(mean)) - mean
        total += each.T @ each
    return total / len(phi)
