"""What the README shows is what happens."""

import re
from pathlib import Path

from typer.testing import CliRunner

from maskedlark.cli import app

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_python_example_gives_what_its_comment_says():
    [block] = re.findall(r"```python\n(import numpy.*?)```", README, re.DOTALL)
    *setup, masked, shares = [line for line in block.splitlines() if line]
    names: dict[str, object] = {}
    exec("\n".join(setup), names)
    expression, comment = masked.split("#")
    assert repr(eval(expression, names)) in comment
    assert len(set(eval(shares.split("#")[0], names)) & {0, 1}) == 0


def test_the_output_on_the_first_screen_is_the_demo_s_but_for_randomness():
    [screen] = re.findall(r"```console\n\$ scripts/demo\n(.*?)```", README, re.DOTALL)
    shown = CliRunner(env={"COLUMNS": "80", "TERM": "dumb"}).invoke(app, ["demo"])
    assert shown.exit_code == 0, shown.output
    assert stable(screen) == stable(shown.stdout)[: len(stable(screen))]


def stable(output: str) -> list[str]:
    """The words of an output without what differs from run to run: estimates, shares, ids, digests."""
    words = re.sub(r"[^\w\s:,.'=%-]", " ", output).split()
    return [word for word in words if not re.search(r"\d|^-$|^[0-9a-f]{8,16}$", word)]
