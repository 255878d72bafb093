"""Reading what a service shows of itself: its metrics page, and its lines."""

from fastapi import FastAPI
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families


def samples(app: FastAPI) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every number of the page by its name and labels."""
    page = generate_latest(app.state.metrics).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def of(app: FastAPI, name: str) -> dict[tuple[str, ...], float]:
    """The numbers of one name, by the values of its labels in the order of their names."""
    return {
        tuple(value for _, value in labels): number
        for (found, labels), number in samples(app).items()
        if found == name
    }
