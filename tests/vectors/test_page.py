"""The page of the protocol shows a vector down to its bytes."""

from pathlib import Path

from vectors import example

PAGE = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"


def test_the_example_of_the_page_is_a_vector():
    assert example.text() in PAGE.read_text()
