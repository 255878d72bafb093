"""What the README shows is what happens. Its first screen: `tests/unit/cli/test_demo.py`."""

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_python_example_gives_what_its_comment_says():
    [block] = re.findall(r"```python\n(import numpy.*?)```", README, re.DOTALL)
    *setup, masked, shares = [line for line in block.splitlines() if line]
    names: dict[str, object] = {}
    exec("\n".join(setup), names)
    expression, comment = masked.split("#")
    assert repr(eval(expression, names)) in comment
    assert len(set(eval(shares.split("#")[0], names)) & {0, 1}) == 0
