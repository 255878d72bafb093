"""What an audit found, beside what is allowed; and the verdict of all of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import typer
from rich.console import Console
from rich.table import Table

DEVIATIONS = 5
"""Beyond so many standard deviations of a blind guess: one false alarm in 1.7 million for each figure."""
CONFIDENCE = 0.9999
"""Of a bound on ε: it is over the true one by chance once in ten thousand audits."""


@dataclass(frozen=True)
class Finding:
    """One figure of one attack."""

    attack: str
    by: str
    """Who attacks."""
    found: float
    allowed: float | None
    """None: a control, against something that does not protect. There the attack has to win."""
    least: float = 0.0
    """Of a control: an attack that finds less is blind, and proves nothing."""

    @property
    def ok(self) -> bool:
        """Whether nothing above what is allowed was found; of a control, whether the attack sees."""
        return self.found >= self.least if self.allowed is None else self.found <= self.allowed

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.allowed is None:
            return "control: it sees" if self.ok else "BLIND"
        return "ok" if self.ok else "MORE THAN ALLOWED"


def show(audit: str, figure: str, findings: Sequence[Finding], as_json: bool) -> None:
    """Print all of it; exit with 1 if more was found than is allowed, or if a control failed."""
    ok = all(each.ok for each in findings)
    if as_json:
        listed = [{**asdict(each), "ok": each.ok} for each in findings]
        typer.echo(json.dumps({"audit": audit, "figure": figure, "findings": listed, "ok": ok}))
    else:
        _print(figure, findings)
        typer.echo(_said(findings))
    if not ok:
        raise typer.Exit(1)


def _print(figure: str, findings: Sequence[Finding]) -> None:
    table = Table()
    for column in ("attack", "by", f"{figure} found", "allowed", "verdict"):
        table.add_column(column, overflow="fold")
    for each in findings:
        allowed = "—" if each.allowed is None else f"{each.allowed:.3f}"
        table.add_row(each.attack, each.by, f"{each.found:.3f}", allowed, each.verdict)
    Console(highlight=False).print(table)


def _said(findings: Sequence[Finding]) -> str:
    if any(each.allowed is None and not each.ok for each in findings):
        return "A control failed: the attack is blind, so this audit says nothing. Give it more to work with."
    if all(each.ok for each in findings):
        return "Nothing above what is allowed was found."
    return "More was found than is allowed: something leaks, or noise is missing."
