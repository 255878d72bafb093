"""What the README shows is what happens. Its first screen: `tests/unit/cli/test_demo.py`."""

import re
from pathlib import Path

from maskedlark import cli

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_python_example_gives_what_its_comment_says():
    [block] = re.findall(r"```python\n(import numpy.*?)```", README, re.DOTALL)
    *setup, masked, shares = [line for line in block.splitlines() if line]
    names: dict[str, object] = {}
    exec("\n".join(setup), names)
    expression, comment = masked.split("#")
    assert repr(eval(expression, names)) in comment
    assert len(set(eval(shares.split("#")[0], names)) & {0, 1}) == 0


SECTIONS = (
    "1", "2", "3", "3.1", "3.2", "3.3", "3.3.1", "4.1", "4.1.1", "4.1.2", "4.2", "4.2.1", "4.2.2", "4.2.3",
    "5.1", "5.1.1", "5.2", "5.3", "5.4", "6",
)  # fmt: skip
"""Of the paper. 4 and 5 are nothing but their parts."""


def plain(row: str) -> str:
    return re.sub(r"(algorithm|figure) \d", "", row)


def test_every_section_of_the_paper_is_in_the_table_and_no_other():
    rows = re.findall(r"^\| ([^|]*\([^|]*)\|[^|]*\|[^|]*\|$", README, re.MULTILINE)
    named = {number for row in rows for number in re.findall(r"(?<=[( ])\d(?:\.\d)*(?=[,)])", plain(row))}
    assert named == {*SECTIONS}


def test_exit_codes_are_those_of_the_help():
    codes = re.findall(r"^\| (\d+) \| (.*) \|$", README, re.MULTILINE)
    assert f"Exit codes: {'; '.join(' '.join(row) for row in codes)}." in str(cli.app.info.epilog)
