"""A fitted linear model: φ, its coefficients and their errors. Run by whoever serves it; needs no client."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from maskedlark.errors import BadArguments
from maskedlark.exact.moments import Representation
from maskedlark.features.encoder import Encoder
from maskedlark.fitting.glm import Family
from maskedlark.fitting.maps import Floats
from maskedlark.fitting.moments_request import real_rows
from maskedlark.training.public_rows import encoded


@dataclass(frozen=True, eq=False)
class FittedModel:
    """What predictions need, and what the coefficients of named columns are."""

    family: Family
    tag: str
    encoder: Encoder | None
    phi: Representation
    theta: Floats
    """(outputs, width), the constant last."""
    names: tuple[str, ...]
    coefficients: Floats
    """(outputs, names): each column goes from 0 to 1."""
    intercept: Floats
    errors: Floats
    """Standard errors, (outputs, names + 1), the intercept's last; NaN of too many, and if recalibrated."""
    label: int = 0
    """Which of the model's labels."""
    before: "FittedModel | None" = None
    """The model that this one was recalibrated from: its evaluation is a question that was answered."""

    def is_recalibrated_from(self, model: "FittedModel") -> bool:
        """Whether it is that model, but for intercept and slope."""
        return self.before is not None and np.array_equal(self.before.theta, model.theta)

    def scores(self, table: Any) -> Floats:  # noqa: ANN401 - a table, or bytes (n, d)
        """Logits, or expected labels and their logarithms: (n, outputs)."""
        rows = encoded(table, self.encoder, self.phi.network.features)
        return real_rows(self.phi, rows)[0] @ self.theta.T

    def decision_function(self, table: Any) -> Floats:  # noqa: ANN401
        """Scores of rows; of classes, one each."""
        scores = self.scores(table)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, table: Any) -> Floats:  # noqa: ANN401
        """The probability of every class: (n, classes)."""
        if not self.family.is_class:
            raise BadArguments(f"a {self.family.name} model has no classes: use predict")
        means = self.family.mean(self.scores(table))
        return np.concatenate([1 - means, means], axis=1) if self.family.is_binary else means

    def predict(self, table: Any) -> NDArray[Any]:  # noqa: ANN401
        """The likeliest class, or the expected label."""
        if self.family.is_class:
            return np.array(self.predict_proba(table).argmax(axis=1))
        return self.family.mean(self.scores(table))[:, 0]

    def intervals(self, confidence: float = 0.95) -> Floats:
        """Of coefficients, the intercept last: (outputs, names + 1, 2)."""
        centre = np.concatenate([self.coefficients, self.intercept[:, None]], axis=1)
        half = norm.ppf((1 + confidence) / 2) * self.errors
        return np.stack([centre - half, centre + half], axis=2)
