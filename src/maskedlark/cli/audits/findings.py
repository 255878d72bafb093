"""What an audit found, beside what is allowed; and the verdict of all of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import typer
from rich.console import Console

from maskedlark.cli.output import print_result, table

DEVIATIONS = 5
"""Beyond so many standard deviations of a blind guess: one false alarm in 1.7 million for each figure."""
CONFIDENCE = 0.9999
"""Of a bound on ε: it is over the true one by chance once in ten thousand audits."""
SEEN = 1 / 2
"""Of its allowed ε, who has all noise but one helper's has to find so much: else the audit is blind."""
SEEN_ALONE = 1 / 3
"""The same of the ad server alone: two helpers' noise is √2 of what is accounted, and less is to be found."""

LEAKS, BLIND = "MORE THAN ALLOWED", "BLIND"
_CONCLUSIONS = {
    LEAKS: "More was found than is allowed: something leaks, or noise is missing.",
    BLIND: "An attack is blind: it found less than it has to, so this audit says nothing. Give it more.",
}
"""By verdict, the worst first."""


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
    """An attack that finds less is blind, and proves nothing."""

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.allowed is not None and self.found > self.allowed:
            return LEAKS
        if self.found < self.least:
            return BLIND
        return "control: it sees" if self.allowed is None else "ok"

    @property
    def ok(self) -> bool:
        """Whether the attack sees, and found nothing above what is allowed."""
        return self.verdict not in _CONCLUSIONS


def show(audit: str, figure: str, findings: Sequence[Finding], as_json: bool, **figures: float) -> None:
    """Print all of it; exit with 1 if more was found than is allowed, or if an attack is blind.

    `figures`: what programs get beside the findings, by name.
    """
    verdicts = {each.verdict for each in findings}
    wrong = [words for verdict, words in _CONCLUSIONS.items() if verdict in verdicts]
    listed = [{**asdict(each), "ok": each.ok, "verdict": each.verdict} for each in findings]
    fields = {"audit": audit, "figure": figure, **figures, "findings": listed, "ok": not wrong}
    if not as_json:
        columns = ("attack", "by", f"{figure} found", "at least", "allowed", "verdict")
        Console(highlight=False).print(table(columns, map(_row, findings)))
    print_result(fields, as_json, next(iter(wrong), "Nothing above what is allowed was found."))
    if wrong:
        raise typer.Exit(1)


def _row(finding: Finding) -> tuple[str, ...]:
    least = f"{finding.least:.3f}" if finding.least > 0 else "—"
    allowed = "—" if finding.allowed is None else f"{finding.allowed:.3f}"
    return finding.attack, finding.by, f"{finding.found:.3f}", least, allowed, finding.verdict
