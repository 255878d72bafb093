"""The worked examples of docs/PROTOCOL.md, from vectors: `python -m vectors.example` prints them."""

from collections.abc import Iterator
from typing import Any

from maskedlark.core import field
from vectors import load

NAME = "one model, clicks, [1]"
CHECKED = "a binary label: 1"
_SHOWN = 32
"""Bytes of a long field that are shown."""


def text() -> str:
    """All fields of one report to train for two helpers, with their offsets."""
    [vector] = [each for each in load("reports") if each["name"] == NAME]
    [layout] = [
        each for each in load("layouts") if (each["document"], each["purpose"]) == ("one model", "train")
    ]
    lines = [*_made(vector), "", *_payloads(vector, layout), "", *_report(vector, layout)]
    return "\n".join(["```", *lines, "```"])


def _line(name: str, offset: int | None, data: str, note: str = "") -> str:
    shown = data if len(data) <= 2 * _SHOWN else f"{data[: 2 * _SHOWN]}… ({len(data) // 2} bytes)"
    place = "" if offset is None else str(offset)
    return f"{name:<16}{place:>5}  {shown}{'   ' + note if note else ''}".rstrip()


def _made(vector: dict[str, Any]) -> Iterator[str]:
    drawn = vector["drawn"]
    yield _line("report id", None, drawn[:32], "drawn first")
    yield _line("salt", None, drawn[32:64], "then")
    yield _line("seed of helper 1", None, drawn[64:96], "then")
    yield _line("open columns", None, vector["columns"], "model 0, then six bytes")
    secret, shown, label = ", ".join(vector["secret"]), vector["candidates"][0], vector["truth"][0]
    yield f"secret                 ({secret}): candidates {shown}, label {label}"
    for helper in vector["helpers"]:
        yield f"share                  ({', '.join(helper['shares'])}) of {helper['name']}"


def _payloads(vector: dict[str, Any], layout: dict[str, Any]) -> Iterator[str]:
    for place, (helper, at) in enumerate(zip(vector["helpers"], layout["helpers"], strict=True)):
        [record], data = at["records"], helper["payload"]
        yield f"payload of helper {place}, {at['payload_bytes']} bytes"
        yield _line("  salt", 0, data[:32])
        for name in ("columns", "secret"):
            start, end = record[name]
            yield _line(f"  {name}", start, data[2 * start : 2 * end])


def _report(vector: dict[str, Any], layout: dict[str, Any]) -> Iterator[str]:
    data, head = vector["report"], len(layout["prefix"]) // 2
    yield f"report, {layout['report_bytes']} bytes"
    spans = {"version": (0, 1), "purpose": (1, 2), "parameters": (2, 34), "origin": (34, head)}
    spans |= {"report id": (head, head + 16), "hour": (head + 16, head + 20)}
    spans["column hash"] = (head + 20, head + 52)
    at = head + 52
    for place, helper in enumerate(layout["helpers"]):
        sealed = helper["part_bytes"] - 52 - 16
        spans |= {f"key id {place}": (at, at + 16), f"sealed {place}": (at + 16, at + 16 + sealed)}
        at += 16 + sealed
    for name, (start, end) in spans.items():
        yield _line(f"  {name}", start, data[2 * start : 2 * end])
    for place, helper in enumerate(vector["helpers"]):
        yield _line(f"info of helper {place}", None, helper["info"])


def check() -> str:
    """The check of one record of two helpers."""
    vector = next(each for each in load("checks") if each["name"] == CHECKED)
    (u, *g), numbers = vector["proof"], vector["numbers"]
    masks = vector["secret"]
    sums = [sum(int(pair[i]) for pair in numbers) % field.P for i in range(2)]
    rows = {
        "v": [*masks, sum(map(int, masks))],
        "u": [u],
        "g(0), g(4), g(5), g(6)": g,
        "t": [vector["t"]],
        "f(t), g(t) of helper 0": numbers[0],
        "f(t), g(t) of helper 1": numbers[1],
        "F, G": sums,
    }
    lines = [f"{name:<24}{', '.join(map(str, row))}" for name, row in rows.items()]
    return "\n".join(["```", *lines, "```"])


if __name__ == "__main__":
    print(check(), text(), sep="\n\n")
