"""What is trained on labels that one release, randomising browsers or somebody's trust gave; and its scores.

Everything here is post-processing: it costs no further ε. Run by the figure of one release.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import Split

Floats = NDArray[np.floating[Any]]
EPOCHS, HIDDEN = 6, 500
"""Of the student of images, whoever labelled its rows."""
PRIOR = 1.0
"""Of `mapped`: the inverse of a coefficient's variance, before anything is seen."""


def student(data: Split, targets: Floats, seed: int, kept: float = 1.0, off: float = 0.0) -> Floats:
    """784-500-10, Adam, six epochs; the likelihood of a label is kept · p + off where it was randomised."""
    import torch  # noqa: PLC0415 - slow to import

    torch.manual_seed(seed)
    sizes = data.features.shape[1], HIDDEN, targets.shape[1]
    model = torch.nn.Sequential(torch.nn.Linear(*sizes[:2]), torch.nn.ReLU(), torch.nn.Linear(*sizes[1:]))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rows, wanted = torch.tensor(data.features), torch.tensor(targets, dtype=torch.float32)
    for _ in range(EPOCHS):
        for some in torch.randperm(len(rows)).split(256):  # type: ignore[no-untyped-call]
            chances = model(rows[some].float() / 256).softmax(dim=1)
            loss = -(wanted[some] * (kept * chances + off).clamp_min(1e-12).log()).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.inference_mode():
        found: Floats = model(torch.tensor(data.test_features).float() / 256).softmax(dim=1).numpy()
    return found


def boosted(data: Split, targets: Floats, seed: int) -> Floats:
    """Gradient boosting: every row once with each label, weighted by its chance."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - slow to import

    model = HistGradientBoostingClassifier(learning_rate=0.05, max_iter=150, random_state=seed)
    rows, classes = np.tile(data.features, (2, 1)), np.repeat([0, 1], len(data.features))
    model.fit(rows, classes, sample_weight=targets.T.ravel())
    found: Floats = model.predict_proba(data.test_features)
    return found


def mapped(data: Split, targets: Floats, seed: int, kept: float = 1.0, off: float = 0.0) -> Floats:  # noqa: ARG001
    """The likeliest logistic regression of the map that linear models have, with a normal prior."""
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to import
    from scipy.special import expit  # noqa: PLC0415 - as above

    from maskedlark.fitting import maps  # noqa: PLC0415 - as above

    names = [f"byte {place}" for place in range(data.features.shape[1])]
    own = maps.fit(data.features, names, "buckets")
    rows, others = (
        np.c_[np.ones(len(each)), own.units(each) @ own.weight.T + own.bias]
        for each in (data.features, data.test_features)
    )
    positive = targets[:, 1] > 0.5

    def loss(theta: Floats) -> tuple[float, Floats]:
        chance = expit(rows @ theta)
        shown = kept * chance + off
        likelihood = np.where(positive, shown, 1 - shown)
        slope = kept * chance * (1 - chance) * np.where(positive, -1, 1) / likelihood
        return (
            float(-np.log(likelihood).sum() + 0.5 * PRIOR * (theta[1:] ** 2).sum()),
            slope @ rows + PRIOR * np.r_[0.0, theta[1:]],
        )

    found: Floats = expit(others @ minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x)
    return np.stack([1 - found, found], axis=1)


def scores(chances: Floats, data: Split) -> dict[str, float]:
    """`y`: AUC of a yes or no, in percent the accuracy of classes; and log-loss."""
    truth = data.test_labels
    if chances.shape[1] == 2:
        return {"y": auc(chances[:, 1], truth), "log_loss": log_loss(chances[:, 1], truth)}
    return {"y": 100 * float((chances.argmax(axis=1) == truth).mean())}


def auc(scores: Floats, labels: NDArray[np.int64]) -> float:
    """The chance that a record with the label scores above one without, ties counting half."""
    from scipy.stats import rankdata  # noqa: PLC0415 - slow to import

    ranks, positive = rankdata(scores), labels == 1
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(ranks) - count)))


def log_loss(probabilities: Floats, labels: NDArray[np.int64]) -> float:
    """The mean negative log-probability of the true label."""
    true = np.where(labels == 1, probabilities, 1 - probabilities)
    return float(-np.log(np.maximum(true, 1e-15)).mean())
