"""Linear models from one private release: the ad server has the features, helpers answer Σ φ(x) t(y) once.

Run by the ad server. Everything after the release is post-processing: it costs nothing and asks nobody.
`LogisticRegression`, `LinearRegression` and `PoissonRegressor` follow scikit-learn's conventions, but for y.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskedlark.fitting.cell_labels import CellLabels as CellLabels
    from maskedlark.fitting.comparing import compare as compare
    from maskedlark.fitting.estimators import LinearRegression as LinearRegression
    from maskedlark.fitting.estimators import LogisticRegression as LogisticRegression
    from maskedlark.fitting.estimators import PoissonRegressor as PoissonRegressor
    from maskedlark.fitting.evaluating import evaluate as evaluate
    from maskedlark.fitting.evaluating import evaluation as evaluation
    from maskedlark.fitting.evaluating import recalibrated as recalibrated
    from maskedlark.fitting.saving import load as load

_HOMES = {
    "CellLabels": "cell_labels",
    "LinearRegression": "estimators",
    "LogisticRegression": "estimators",
    "PoissonRegressor": "estimators",
    "compare": "comparing",
    "evaluate": "evaluating",
    "evaluation": "evaluating",
    "load": "saving",
    "recalibrated": "evaluating",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    # Imported on first use: torch and scikit-learn take seconds to load.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
