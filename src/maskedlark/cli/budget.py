"""`maskedlark budget`: what a source has cost, what spent it, and what is left of what."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console

from maskedlark.adserver import dates
from maskedlark.adserver.client import Client
from maskedlark.adserver.spending import BudgetState, Spending
from maskedlark.cli.error_handling import command
from maskedlark.cli.options import AdServerConfig, Json
from maskedlark.cli.output import print_result, said_if_slow, table
from maskedlark.ledger.budget import BUDGET, Limit, StreamSpent
from maskedlark.ledger.wording import at_most
from maskedlark.parameters.document import Document

_AGGREGATE = "to aggregate"
_BOTH = "ε", "ε, coalition"
app = typer.Typer()


@command(app, "budget --config adserver.toml")
def budget(config: AdServerConfig, as_json: Json = False) -> None:
    """What a source has cost, what spent it, and what is left of what. Asks for receipts, spends nothing."""
    with (
        said_if_slow("fetching receipts, computing every charge again"),
        Client.from_config(config) as client,
    ):
        names = {each.digest: each.name for each in client.datasets() if each.digest is not None}
        states = client.budgets()
    fields = {"documents": [_fields(state, names) for state in states]}
    if as_json:
        print_result(fields, as_json)
        return
    console = Console(highlight=False)
    for state in states:
        _show(console, state, names)


def left(client: Client, document: Document) -> tuple[str, dict[str, Any]]:
    """What is left of what after a command, as a line and for programs."""
    state = client.budget(document)
    limits, streams = state.limits, state.dearest.streams
    deltas = [each for each in streams if each.session_delta]
    shown = [f"left of {BUDGET}: {_both(*limits[:2])}"]
    if limits[2:]:
        shown.append(f"of what training may cost: {_both(*limits[2:])}")
    shown += [f"δ for sessions of {each.stream}: {_sessions(each)}" for each in deltas]
    return "; ".join(shown), {
        "limits": [_limit(each) for each in limits],
        "delta_of_sessions": {each.stream: each.session_delta_left for each in deltas},
    }


def _both(alone: Limit, together: Limit) -> str:
    one, other = (f"{each.left:.4g} of {each.epsilon:g}" for each in (alone, together))
    return f"ε = {one} against the ad server alone, {other} against it with all helpers but one"


def _fields(state: BudgetState, names: Mapping[bytes, str]) -> dict[str, Any]:
    """For programs."""
    spent = state.dearest
    return {
        "origin": state.document.origin,
        "version": state.document.version,
        "parameters": state.document.digest.hex(),
        "budget_delta": state.document.budget.delta,
        "helpers": [each.helper for each in state.helpers],
        "helpers_missing": dict(state.missing),
        "least_is_left_at": spent.helper,
        "helpers_differ": state.differ,
        "receipts_lost": spent.lost,
        "limits": [_limit(each) for each in state.limits],
        "streams": [
            {
                "purpose": "aggregate" if each.stream is None else "train",
                "model": each.stream,
                "spent_epsilon": each.spent.adserver,
                "spent_coalition_epsilon": each.spent.coalition,
                "delta_of_single_releases": each.single_delta,
                "delta_of_sessions": each.session_delta,
                "delta_of_sessions_left": each.session_delta_left,
            }
            for each in spent.streams
        ],
        "entries": [
            {
                "receipt": each.number,
                "time": dates.iso(each.time),
                "what": each.what,
                "model": each.stream,
                "datasets": _named(each, names),
                "request": each.request,
                "steps": each.steps,
                "epsilon": each.epsilon.adserver,
                "coalition_epsilon": each.epsilon.coalition,
                "session_delta": each.delta,
            }
            for each in spent.entries
        ],
    }


def _limit(limit: Limit) -> dict[str, Any]:
    return {**limit._asdict(), "left": limit.left}


def _named(entry: Spending, names: Mapping[bytes, str]) -> list[str]:
    return [names.get(bytes.fromhex(digest), digest[:8] + "…") for digest in entry.datasets]


def _show(console: Console, state: BudgetState, names: Mapping[bytes, str]) -> None:
    spent, document = state.dearest, state.document
    signed = " and ".join(each.helper for each in state.helpers)
    console.print(
        f"{document.origin}, version {document.version}: what a source may have cost, by receipts of {signed}"
    )
    limits = [
        (_limited(each), *map("{:.4g}".format, (each.spent, each.left, each.epsilon)))
        for each in state.limits
    ]
    console.print(table(["ε of …", "spent", "left", "in all"], limits))
    streams = map(_row, spent.streams)
    console.print(table(["report", *_BOTH, "δ of releases", "δ left for sessions"], streams))
    if spent.entries:
        entries = [_entry(each, names) for each in spent.entries]
        console.print(table(["receipt", "what", *_BOTH, "δ"], entries))
    for line in _notes(state):
        console.print(line)


def _limited(limit: Limit) -> str:
    return f"{BUDGET}, against the ad server" if limit.of == BUDGET else limit.of


def _row(spent: StreamSpent) -> Sequence[str]:
    figures, sessions = (f"{each:.4g}" for each in spent.spent), _sessions(spent)
    return spent.stream or _AGGREGATE, *figures, f"{spent.single_delta:.3g}", sessions


def _sessions(spent: StreamSpent) -> str:
    return f"{at_most(spent.session_delta_left)} of {spent.session_delta:.3g}" if spent.session_delta else ""


def _entry(entry: Spending, names: Mapping[bytes, str]) -> Sequence[str]:
    steps = "" if entry.steps is None else f", {entry.steps} steps"
    of = "" if entry.stream is None else f" of {entry.stream}"
    what = f"{entry.what}{of}{steps}, over {', '.join(_named(entry, names))}"
    figures = (f"{figure:.4g}" for figure in entry.epsilon)
    return str(entry.number), what, *figures, f"{entry.delta:.3g}" if entry.delta else ""


def _notes(state: BudgetState) -> Iterator[str]:
    yield (
        "ε is against the ad server alone; beside it, against a coalition: the ad server with all helpers "
        "but one. Each costs what it adds to the most expensive dataset of its report. Sums, fits and "
        "evaluations are accounted at one δ; each training session takes a part of the other, which comes to "
        "an end too."
    )
    for name, why in state.missing.items():
        yield f"{name} cannot be asked, and may have charged more than its receipts stored here: {why}"
    if state.differ:
        yield "Helpers have charged different requests: this is where the least is left; `query --pending`"
    if state.dearest.lost:
        yield f"{state.dearest.helper} has lost receipts: all of this counts as spent"
