"""What the protocol's page says of errors, messages and limits is what the code does."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import maskedlark
from maskedlark.core.declared import MAX_NAMES
from maskedlark.dp.mechanisms import MAX_NOISE, MIN_NOISE
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import MAX_STEPS
from maskedlark.errors import MaskedLarkError, Refused
from maskedlark.exact.operations import ACTIVATIONS
from maskedlark.functions.model import (
    MAX_LAYERS,
    MAX_PARAMETERS,
    DescribedLayer,
    DescribedLoss,
    DescribedModel,
)
from maskedlark.ledger.errors import BudgetExhausted, DeltaExhausted, SlotTaken
from maskedlark.ledger.receipt import Certificate, SignedCertificate, SignedReceipt
from maskedlark.release import messages
from maskedlark.release.messages import Explanation, Request, SessionRequest
from maskedlark.release.shared_seed import SealedSeed, SeedMessage, SignedSeed
from maskedlark.web import error_responses, problem
from maskedlark.web.pages import MAX_PAGE, MAX_PAGE_BYTES
from maskedlark.wire import checks, datasets, steps

PAGE = (Path(__file__).parents[2] / "docs" / "PROTOCOL.md").read_text()
SERVICES = (
    "errors",
    "wire",
    "web",
    "ledger",
    "release",
    "parameters",
    "helper",
    "storage",
    "compute",
    "exact",
)
"""What services are made of: other packages are of clients, and their errors stay there."""
NEVER_SENT = {
    # Names of groups: nothing raises them.
    *("DecodeError", "RequestRefused", "OutsidePolicy", "NotOurs", "NotThere", "DatasetRefused"),
    "ReleaseRefused",
    # A browser's own.
    "NotAnAnswer",
}


def _section(heading: str) -> str:
    return re.split(r"^#+ ", PAGE.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def _rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]


def _subclasses(cls: type[MaskedLarkError]) -> Iterator[type[MaskedLarkError]]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


def _sent() -> dict[str, int]:
    """The status of every error that a service may answer with. Those of single reports have none there."""
    for found in pkgutil.walk_packages(maskedlark.__path__, "maskedlark."):
        if found.name.split(".")[1] in SERVICES:
            importlib.import_module(found.name)
    homes = tuple(f"maskedlark.{name}" for name in SERVICES)
    return {
        cls.__name__: status
        for cls in _subclasses(MaskedLarkError)
        if cls.__module__.startswith(homes) and not issubclass(cls, Refused)
        if (status := problem._status(cls)) is not None and cls.__name__ not in NEVER_SENT
    }


def test_every_refusal_is_on_the_page_with_its_status():
    listed = [
        (name, int(row[0]))
        for row in _rows(_section("### Refusals"))
        if row[0].isdecimal()
        for name in re.findall(r"`(\w+)`", row[1])
    ]
    assert len(listed) == len(dict(listed))
    assert dict(listed) == _sent()


def test_members_of_problems_are_on_the_page():
    listed: dict[str, list[str]] = {}
    last = ""
    for error, member, *_ in _rows(_section("### Refusals").partition("| error | member |")[2]):
        last = error.strip("`") or last
        listed.setdefault(last, []).extend(re.findall(r"`(\w+)`", member))
    raised = BudgetExhausted(1.0, 2.0, None), DeltaExhausted(0.0, 1e-6), SlotTaken(5)
    assert {name: members for name, members in listed.items() if members} == {
        type(error).__name__: list(error.facts()) for error in raised
    }


@pytest.mark.parametrize(
    "form",
    [
        datasets.NewDataset,
        datasets.State,
        datasets.ChunkAnswer,
        datasets.CheckAnswer,
        datasets.Frozen,
        messages.RecordCounts,
        messages.ReceiptPage,
        messages.ExplainedSpending,
        messages.ExplainedColumn,
        messages.ExplainedTable,
        Request,
        SessionRequest,
        Sampling,
        DescribedModel,
        DescribedLayer,
        DescribedLoss,
        Certificate,
        SignedCertificate,
        SignedReceipt,
        SeedMessage,
        SealedSeed,
        SignedSeed,
    ],
    ids=lambda form: form.__name__,
)
def test_a_message_is_shown_with_all_its_fields(form):
    # Shown as an object, whatever is in it: { ... "field" ... "field" ... }.
    shown = [set(re.findall(r'"(\w+)"', each)) for each in _objects(PAGE)]
    assert any(set(form.model_fields) <= each for each in shown)


def _objects(text: str) -> Iterator[str]:
    """Everything between braces that match, inner objects included."""
    opened: list[int] = []
    for place, letter in enumerate(text):
        if letter == "{":
            opened.append(place)
        elif letter == "}" and opened:
            yield text[opened.pop() : place + 1]


def test_an_explanation_is_described_with_all_its_fields():
    named = set(re.findall(r"[`\"](\w+)[`\"]", _section("### Explanations")))
    assert {*Explanation.model_fields, *messages.ExplainedCost.model_fields} <= named


def test_words_of_networks_and_batches_are_on_the_page():
    training = _section("## Training")
    for activation in ACTIVATIONS:
        assert f'`"{activation.name}"`' in training
    for kind in Sampling.model_fields["kind"].annotation.__args__:  # type: ignore[union-attr]
        assert f"| `{kind}` |" in training


def _power(number: int) -> str:
    """A power of two as the page writes it."""
    assert number & (number - 1) == 0
    return "2" + str(number.bit_length() - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def test_limits_are_those_of_the_code():
    limits = {name: rest[0] for name, *rest in _rows(_section("### Queries"))}
    assert limits["`datasets`"].startswith(f"1 to {messages.MAX_DATASETS},")
    assert (MIN_NOISE, MAX_NOISE) == (0.001, 10**9)
    assert limits["`noise`"].startswith("0.001 to 10⁹,")
    mebibytes, commas = messages.MAX_REQUEST >> 20, Request.max_commas
    assert limits["bytes, commas"] == f"at most {mebibytes} MiB, {commas:,}"
    assert limits["`slots`"] == f"one per dataset, each 0 to {_power(messages.MAX_SLOT)}"
    assert limits["`steps`, `delta`"].startswith(f"1 to {_power(MAX_STEPS)};")
    assert limits["`records` of a step"].startswith(f"at most {steps.MAX_RANGES:,} ranges")


def test_sizes_of_messages_are_those_of_the_code():
    assert "1 to 64; the answer has at most 64 MiB" in PAGE
    assert (messages.MAX_TABLES, messages.MAX_ANSWER) == (64, 64 << 20)
    assert f"vector(4), 1 to {checks.MAX_MESSAGE:,} bytes" in PAGE
    assert f"vector(2), 1 to {checks.MAX_CERTIFICATE:,} bytes" in PAGE
    assert f"(message as vector(4), 1 to {checks.MAX_MESSAGE:,} bytes) …" in PAGE
    assert f"| relay, {checks.MAX_RELAY:,} bytes |" in PAGE
    assert f"so at most {checks.MAX_HELPERS - 1} and {checks.MAX_RELAY:,} bytes." in PAGE
    assert (error_responses.MAX_BODY, MAX_PAGE, MAX_PAGE_BYTES) == (1 << 20, 64, 1 << 20)
    assert PAGE.count("; at most 1 MiB") == 2
    assert "at most 64 and, if there are several, at most 1 MiB of documents" in PAGE


def test_bounds_of_a_network_are_those_of_the_code():
    limits = {name: rest[0] for name, *rest in _rows(_section("## Training"))}
    layer, loss, model = (
        form.model_json_schema()["properties"] for form in (DescribedLayer, DescribedLoss, DescribedModel)
    )
    assert limits["`layers`"] == f"1 to {MAX_LAYERS}, in all at most {_power(MAX_PARAMETERS)} parameters"
    assert f"at most {MAX_NAMES}." in limits["`losses`"]
    assert _bounds(layer["slope"]["anyOf"][0]) in limits["`slope`"]
    assert _bounds(layer["dropout"]["anyOf"][0]) in limits["`dropout`"]
    assert _bounds(loss["classes"]["anyOf"][0]) in limits["`losses`"]
    assert _bounds(model["fraction"]) in limits["`fraction`"]
    assert _bounds(model["depth"]) in limits["`depth`"]
    assert f"1 to {model['features']['maximum']:,}" in limits["`features`"]
    assert f"1 to {layer['outputs']['maximum']:,}" in limits["`outputs`, `bias`"]


def _bounds(schema: dict[str, int]) -> str:
    return f"{schema['minimum']} to {schema['maximum']}"
