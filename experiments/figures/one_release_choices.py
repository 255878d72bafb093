"""Which constants of the package are changed to see what hangs on them: each by itself, by half and by twice.

Used by the figure of one release.
"""

from collections.abc import Mapping

Changed = Mapping[str, float]
OWN = "as they are"
OF_MAPS: Mapping[str, Changed] = {
    OWN: {},
    "ridge 1": {"ridge": 1.0},
    "ridge 16": {"ridge": 16.0},
    "buckets 4": {"BUCKETS": 4},
    "buckets 10": {"BUCKETS": 10},
    "trees 12": {"TREES": 12},
    "trees 48": {"TREES": 48},
}
"""The ridge of the whitening, steps of a column, and trees: of `fitting/maps.py`."""
OF_CELLS: Mapping[str, Changed] = {
    OWN: {},
    "3 deviations in a cell": {"size": 3},
    "12 deviations in a cell": {"size": 12},
    "gain 0.2": {"gain": 0.2},
    "gain 0.5": {"gain": 0.5},
    "spread 0.01": {"spread": 0.01},
    "spread 0.1": {"spread": 0.1},
    "10 rounds": {"rounds": 10},
    "40 rounds": {"rounds": 40},
    "5 neighbours": {"neighbours": 5},
    "20 neighbours": {"neighbours": 20},
    "25 components": {"components": 25},
    "100 components": {"components": 100},
}
"""Of `fitting/cell_labels.py`, `soft_labels.py` and `clusters.py`."""
