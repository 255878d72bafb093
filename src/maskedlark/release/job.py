"""What the release pipeline is given: a query or a step, and the records that it is computed over.

Run by a helper.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from maskedlark.core import batches
from maskedlark.core.field import FieldArray
from maskedlark.functions.function import AnyFunction, Query
from maskedlark.randomness import Randomness
from maskedlark.release import parts
from maskedlark.release.checks import Scope
from maskedlark.release.shards import Computation, ShardRows


@dataclass(frozen=True, repr=False)
class Job:
    """A query or a step that passed every check: everything in which the two differ."""

    origin: str
    request: bytes
    """The query's id, or the session's."""
    asked: bytes
    """A digest of the request, by which a kept answer is found again."""
    scope: Scope
    query: Query
    noise: float | None
    is_hidden: bool
    """Whether the ad server does not know which records are used."""
    charge: Callable[[], Callable[[int, int], bytes]]
    """Durably charge it, or claim the step. Returns the seed of the noise by table and column."""
    computation: Computation
    rows: Callable[[], Sequence[ShardRows]]
    """What of every shard it is computed over."""
    mask_context: Callable[[Sequence[FieldArray]], Sequence[bytes | Sequence[bytes]]]
    """What the masks on these columns are bound to, besides the seeds."""


def query_rows(query: Query, scope: Scope, seeds: Sequence[bytes], rng: Randomness) -> list[ShardRows]:
    """All records of a query; for a part, a public number of rows, of which only the part counts."""
    datasets, part, tag = scope.shards(query.tag), query.part, query.tag
    if part is None:
        return [ShardRows(shard) for each in datasets for shard in each]
    assert tag is not None, "only models have parts"
    work = parts.of_part(part, seeds, tag, scope.sizes(tag)).at_least(scope.document.k)
    return work.cut(datasets, rng)


def batch_engine(function: AnyFunction) -> str:
    """What the same share of a batch or part is computed with."""
    return f"{function.engine}, batches {batches.VERSION}"
