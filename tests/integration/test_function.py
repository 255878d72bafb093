"""One file a function: this file. A masked sum of features times the label, through running services.

The function below is all there is to it; helpers load it by the name of this module.
"""

from pathlib import Path

import numpy as np
import pytest

from maskedlark.browser.population import Population
from maskedlark.clock import SystemClock
from maskedlark.core.lemma import masked_sum
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments
from maskedlark.functions.function import Arguments, Column, Function, Partial, Query, Table, TableSchema
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.simulate.cluster import local_cluster
from tests.integration.waiting import next_second

TAG, WIDTH, RECORDS = "clicks", 3, 2000
SETTINGS = f"""
k = 100
budget = {{epsilon = 8.0, delta = 1e-6}}
training = {{adserver = {{epsilon = 8.0, delta = 1e-6}}, coalition = {{epsilon = 8.0, delta = 1e-6}}}}
mechanisms.feature_times_label = {{kind = "gaussian", noise_floor = 1.0}}
[models.{TAG}]
columns = [{{kind = "bytes", count = {WIDTH}}}]
"""


class FeatureTimesLabel(Function):
    """The sum of x · y: for a binary label, each feature over those who converted."""

    name = "feature_times_label"
    purpose = Purpose.TRAIN

    def ask(self, document: Document, arguments: Arguments) -> Query:
        if set(arguments) != {"tag"} or arguments["tag"] not in document.declared_models:
            raise BadArguments("name a declared model as tag, and nothing else")
        return Asked(document, arguments["tag"])


class Asked(Query):
    def __init__(self, document: Document, tag: str) -> None:
        self._model, self.tag = document.declared_models[tag], tag

    @property
    def schemas(self) -> tuple[TableSchema, ...]:
        """One row of d sums. A label that changes from 0 to 1 moves each by up to 255."""
        width = self._model.features
        sensitivity = Sensitivity(255 * width, 255 * width**0.5, touched=width)
        return (TableSchema((), (Column("x", sensitivity, 255, width),)),)

    def over(self, records: Records, device: str = "cpu") -> Partial:
        """What one shard adds; whoever writes a function need not add them up."""
        assert isinstance(records, TrainingRecords)
        return [Table([()], np.array([len(records)]), (masked_sum(_row, records)[None, :],))]


def _row(features, label):
    return features.astype(np.int64) * label[:, None]


def test_a_function_of_one_file_runs_through_the_services(tmp_path):
    rng = FixedRandomness(b"people")
    features = rng.below(256, RECORDS * WIDTH).reshape(RECORDS, WIDTH).astype(np.uint8)
    labels = rng.below(2, RECORDS)
    settings = f'functions = ["{__name__}"]\n'
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        with local_cluster(tmp_path, SETTINGS, SystemRandomness(), 3, helper_settings=settings) as made:
            window = made.document.attribution_window_s + made.document.delay.max_s
            population = Population(
                made.document, made.sealing_keys(), SystemClock().now() - window - 3600, SystemRandomness()
            )
            made.upload(population.train(TAG, features, [labels]))
            with made.client() as client:
                client.select("trained", 0, next_second(), Purpose.TRAIN)
                client.send("trained")
                answered = client.ask(FeatureTimesLabel(), {"tag": TAG}, ["trained"], noise=2.0)
    found = answered.tables[0].columns[0][0]
    truth = (features * labels[:, None]).astype(np.int64).sum(axis=0)
    # Three helpers' Gaussian noise of 2 · 255 · √3 each: eight deviations are never exceeded.
    assert np.abs(found - truth).max() < 8 * 3**0.5 * 2 * 255 * 3**0.5
    assert (found != truth).any()
