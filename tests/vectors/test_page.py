"""The page of the protocol shows a vector down to its bytes."""

from pathlib import Path

from vectors import example

PAGE = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"


def test_the_examples_of_the_page_are_vectors():
    page = PAGE.read_text()
    assert example.text() in page
    assert example.check() in page
