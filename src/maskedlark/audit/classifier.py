"""An attacker that learns: shown half of the records with their labels, it guesses the other half's.

It is stronger than any real helper, which sees no label at all. What it cannot learn from so much help,
no fixed rule of its kind reads off without.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maskedlark.audit.advantage import Advantage, advantage


def attack(rows: NDArray[np.float64], truth: NDArray[np.bool_]) -> dict[str, Advantage]:
    """The advantage of a linear and of a tree-based learner on records that they were not shown."""
    half = len(rows) // 2
    learners = {
        "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "trees": HistGradientBoostingClassifier(max_iter=60, random_state=0),
    }
    answer = {}
    for name, learner in learners.items():
        learner.fit(rows[:half], truth[:half])
        answer[name] = advantage(learner.predict(rows[half:]), truth[half:])
    return answer
