"""What an audit found, against what is allowed, and the verdict."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import typer
from rich.console import Console

from maskedlark.cli.output import print_result, table

DEVIATIONS = 5
"""The limit, in standard deviations of a blind guess: one false alarm in 1.7 million per figure."""
CONFIDENCE = 0.9999
"""The confidence of a bound on ε: by chance it exceeds the true ε once in ten thousand audits."""
SEEN = 1 / 2
"""The share of ε that an attacker with all noise but one helper's must find, or the audit is blind."""
SEEN_ALONE = 1 / 3
"""The same for the ad server alone, which finds less: two helpers' noise is √2 of what is accounted."""

LEAKS, BLIND = "MORE THAN ALLOWED", "BLIND"
_CONCLUSIONS = {
    LEAKS: "More was found than is allowed: something leaks, or noise is missing.",
    BLIND: "An attack is blind: it found less than it has to, so this audit says nothing. Give it more.",
}
"""The message per verdict, the worst first."""


@dataclass(frozen=True)
class Finding:
    """One figure of one attack."""

    attack: str
    by: str
    """Who attacks."""
    found: float
    allowed: float | None
    """None for a control without protection, against which the attack must win."""
    least: float = 0.0
    """An attack that finds less is blind and proves nothing."""

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.allowed is not None and self.found > self.allowed:
            return LEAKS
        if self.found < self.least:
            return BLIND
        return "control: it sees" if self.allowed is None else "ok"


def show(audit: str, figure: str, findings: Sequence[Finding], as_json: bool, **figures: float) -> None:
    """Print findings (and `figures`, for programs); exit with 1 if one exceeds its limit or is blind."""
    verdicts = {each.verdict for each in findings}
    wrong = [words for verdict, words in _CONCLUSIONS.items() if verdict in verdicts]
    listed = [
        {**asdict(each), "ok": each.verdict not in _CONCLUSIONS, "verdict": each.verdict} for each in findings
    ]
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
