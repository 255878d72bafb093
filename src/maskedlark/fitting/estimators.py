"""Estimators with scikit-learn's conventions, except that there is no y: labels stay with the helpers.

    model = LogisticRegression(client, tag="Concerts", epsilon=1.0, encoder=encoder)
    print(model.plan(people))       both ε, noise, expected AUC and errors; nothing is spent
    model.fit(people)               one release; the same fit again costs nothing
    model.predict_proba(others)
    model.coef_, model.intervals_

Run by the ad server.
"""

import inspect
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.errors import BadArguments
from maskedlark.features.encoder import Encoder
from maskedlark.fitting import fit, mismatch, moments_request, options, plan, saving
from maskedlark.fitting.errors import NoIntervals, NoScore
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.glm import LEAST_SQUARES, POISSON, Family
from maskedlark.fitting.maps import Floats
from maskedlark.fitting.moments_request import MAX_COEFFICIENTS, AnyMap, MomentsRequest, Settings
from maskedlark.fitting.plan import FitPlan

_FOLDS = "sklearn.model_selection._validation"
"""What fits every fold, of cross_val_score as of a grid search."""


class Released(BaseEstimator):  # type: ignore[misc]
    """What estimators from one release have in common."""

    @property
    def mismatch_(self) -> str:
        """How many rows and records there are, and how many one side lacks."""
        check_is_fitted(self)
        return mismatch.said(self.rows_, self.records_, self.real_records_)

    def _counted(self, request: Any) -> None:  # noqa: ANN401 - of moments or of cells
        self.rows_, self.records_ = len(request.rows), request.records
        self.real_records_ = request.real_records
        self.n_features_in_ = request.rows.shape[1]
        mismatch.warn(self.rows_, self.records_, self.real_records_, stacklevel=4)

    @property
    def score(self) -> NoReturn:
        """Nobody here has labels to score with: scikit-learn refuses what has no score before it fits."""
        raise NoScore(
            "a score needs labels, which stay with the helpers: `maskedlark.fitting.compare` or "
            "`maskedlark.fitting.evaluate` ask for it, at a price"
        )

    @staticmethod
    def _refuse_to_fit(y: object) -> None:
        """Refuse labels, and folds: scikit-learn would fit and charge every fold before it scores one."""
        if y is not None:
            raise BadArguments("there is no y: labels stay with the helpers; call fit(X)")
        if any(frame.f_globals.get("__name__") == _FOLDS for frame, _ in traceback.walk_stack(None)):
            raise BadArguments(
                "cross-validation would charge a release per fold, and each counts all records of the "
                "datasets: nothing is held out. Fit to all rows, and choose by `maskedlark.fitting.compare`"
            )

    def __init_subclass__(cls) -> None:
        """A class says what its options are: `help` and notebooks show its own words first."""
        super().__init_subclass__()
        if cls.__doc__:
            cls.__doc__ += f"\n\n{inspect.getdoc(cls.__init__)}"

    def __sklearn_clone__(self) -> Self:
        # A client is a connection: a clone shares it.
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "answered_")


class _Linear(Released):
    """A linear model from one release."""

    _family: ClassVar[Family | None] = None
    on_stage: Callable[[str], object] = staticmethod(lambda _: None)
    """Called with what `fit` does once the map is chosen: asking the helpers, then solving."""

    def __init__(
        self,
        client: Client,
        tag: str,
        *,
        epsilon: float | None = None,
        noise: float | None = None,
        label: int = 0,
        datasets: Sequence[str] | None = None,
        encoder: Encoder | None = None,
        map: str | AnyMap | nn.Module = "auto",  # noqa: A002 - what it is
        clip: float | None = None,
        ridge: float | None = None,
        seed: int = 0,
    ) -> None:
        """`client`: the ad server's. `tag`: the declared model; `label`: which of its labels, from 0.

        `epsilon`: what the release may cost; or `noise`, its multiplier; neither: the document's floor.
        `datasets`: by name, all that are frozen by default. `encoder`: the one that made browsers' bytes;
        without it, rows are bytes. `map`: what a column becomes: columns, buckets, trees, random or auto,
        which takes what explains most; or a network learnt without labels, or a map fitted elsewhere. `clip`:
        longer rows of the map are shortened to it, and `ridge`: how much coefficients are drawn to 0; both
        are chosen by default, the ridge after the release. `seed`: of maps, and of the plan's simulation.
        """
        self.client, self.tag, self.epsilon, self.noise = client, tag, epsilon, noise
        self.label, self.datasets, self.encoder = label, datasets, encoder
        self.map, self.clip, self.ridge, self.seed = map, clip, ridge, seed

    def plan(self, X: Any) -> FitPlan:  # noqa: ANN401, N803 - a table
        """What `fit` would cost and how good the model would be. Spends nothing."""
        return plan.plan(self._request(X))

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ANN401, N803
        """Ask helpers once, and fit. The same rows and settings again cost nothing."""
        self._refuse_to_fit(y)
        request = self._request(X)
        request.arguments  # noqa: B018 - chooses the map
        self.on_stage("asking the helpers")
        answered = request.ask()
        self.on_stage("solving")
        moments = request.moments(answered)
        self._fit(request, moments, request.deviation(answered.noise))
        # The last is what makes it fitted.
        self.moments_, self.receipts_, self.answered_ = moments, answered.receipts, answered
        return self

    def _fit(self, request: MomentsRequest, moments: Floats, deviation: float) -> None:
        self.model_ = fit.fit(request, moments, deviation, self.ridge)
        self.map_, self.clip_, self.noise_deviation_ = request.chosen.map, request.chosen.clip, deviation
        self._counted(request)
        if not request.has_intervals:
            said = f"over {MAX_COEFFICIENTS:,} coefficients: intervals_ are NaN"
            warnings.warn(said, NoIntervals, stacklevel=3)
        self.feature_names_out_ = np.array(self.model_.names, dtype=object)
        whole, one = self.model_.intervals(), slice(None) if self.model_.family.is_class else 0
        self.coef_, self.intercept_ = self.model_.coefficients[one], self.model_.intercept[one]
        self.intervals_, self.intercept_interval_ = whole[one, ..., :-1, :], whole[one, ..., -1, :]

    def decision_function(self, X: Any) -> Floats:  # noqa: ANN401, N803
        """Scores of rows; of classes, one each."""
        return self._fitted().decision_function(X)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ANN401, N803
        """The likeliest class, or the expected label."""
        return self._fitted().predict(X)

    def save(self, path: str | Path) -> None:
        """Write what serving needs: `maskedlark.fitting.load` reads it, without a client."""
        saving.save(self._fitted(), path)

    def _fitted(self) -> FittedModel:
        check_is_fitted(self, "model_")
        model: FittedModel = self.model_
        return model

    def _request(self, table: Any) -> MomentsRequest:  # noqa: ANN401
        options.check(self.get_params(deep=False))
        told = {each.name: getattr(self, each.name) for each in fields(Settings)}
        return moments_request.moments_request(Settings(**told), self._family, table)


class LogisticRegression(ClassifierMixin, _Linear):  # type: ignore[misc]
    """Of a binary label, logistic; of a categorical one, softmax."""

    score = Released.score  # Not the mixin's.

    def predict_proba(self, X: Any) -> Floats:  # noqa: ANN401, N803
        """The probability of every class: (n, classes)."""
        return self._fitted().predict_proba(X)

    @property
    def classes_(self) -> NDArray[np.int64]:
        """0 is: did not convert."""
        return np.arange(max(2, len(self._fitted().theta)))


class LinearRegression(RegressorMixin, _Linear):  # type: ignore[misc]
    """Least squares of a number."""

    score = Released.score

    _family: ClassVar[Family | None] = LEAST_SQUARES


class PoissonRegressor(RegressorMixin, _Linear):  # type: ignore[misc]
    """Of a count, or another number of 0 or more, the logarithm of whose mean is linear."""

    score = Released.score

    _family: ClassVar[Family | None] = POISSON
