"""Sums by group, a record at a time."""

from collections.abc import Callable, Mapping, Sequence

from tests.twins import field

Record = tuple[Mapping[str, str | int], Sequence[int]]
"""Keys, and shares."""


def sums(
    records: Sequence[Record],
    by: Sequence[str],
    places: Sequence[int],
    passes: Callable[[Mapping[str, str | int]], bool],
    k: int,
) -> dict[tuple[str | int, ...], list[int]]:
    """Sums of the shares at these places, for every group of at least k records that pass."""
    groups: dict[tuple[str | int, ...], list[Sequence[int]]] = {}
    for keys, shares in records:
        if passes(keys):
            groups.setdefault(tuple(keys[name] for name in by), []).append(shares)
    return {
        group: [field.total([shares[place] for shares in members]) for place in places]
        for group, members in groups.items()
        if len(members) >= k
    }
