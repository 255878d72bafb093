"""The series of `global_dp`: how they are called, and which bounds they have."""

from collections.abc import Sequence

from experiments import compared
from experiments import rows as tables
from experiments.compared import Beside, Theirs
from experiments.rows import Row

AUTHORS = "global_dp_accuracy"
AS_RUN, RAW = "as run", "as run on raw features in floats"
BY_BOUND, BY_RECORD = "as run but ψ/ε on the sum", "as run but 1/ε on each record"
TRUE, HTTP = "accounted", "accounted over HTTP"
WAYS = {"MNIST": AS_RUN, "WBCD": RAW}
"""As the authors ran it, by dataset."""


def named(kind: str, bound: float) -> str:
    """A series."""
    return f"{kind}, bound={bound:g}"


def bounds(rows: Sequence[Row], name: str, kind: str | None = None) -> list[float]:
    """The bounds of a dataset's rows, or of one kind of them, the largest first."""
    chosen = [row for row in tables.of(rows, name) if kind is None or row.series.startswith(f"{kind},")]
    return sorted({row.number("bound") for row in chosen}, reverse=True)


def as_run(rows: Sequence[Row], name: str, bound: float) -> list[Beside]:
    """As the authors ran it, at one bound, with their points."""
    their = Theirs(AUTHORS, f"bound={bound:g}", f"ψ = {bound:g}")
    return compared.beside(rows, name, named(WAYS[name], bound), their)


def accounted(rows: Sequence[Row], name: str) -> list[Row]:
    """All runs of a dataset whose whole training is accounted."""
    return [row for row in tables.of(rows, name) if row.series.startswith(f"{TRUE},")]


def coalition(row: Row) -> float:
    """What a run costs against the ad server with all helpers but one."""
    return row.number("coalition_epsilon")
