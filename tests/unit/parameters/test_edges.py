"""What a document refuses at its edges: weak keys, numbers that JSON cannot keep, deltas that do not fit."""

import json

import pytest

from maskedlark.errors import BrokenChain, InvalidDocument
from maskedlark.parameters import chain
from maskedlark.parameters.policy import CandidatesLeak
from tests.unit.browser.cases import POLICY
from tests.unit.parameters.cases import DOCUMENT_KEY, SERVICE_KEY, make, settings

WEAK = "01" + "00" * 31
TRAINING = {"adserver": {"epsilon": 4.0, "delta": 1e-7}, "coalition": {"epsilon": 40.0, "delta": 1e-7}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"document_key": WEAK}, "small order"),
        ({"request_key": WEAK}, "small order"),
        ({"helpers": [{"name": "a", "identity": WEAK}, settings()["helpers"][1]]}, "small order"),
        ({"decoys": [{"keys": {"campaign": 2**53, "place": 1}}]}, "9007199254740991"),
        ({"values": [{"name": "v", "low": 0, "high": 2**53}]}, "9007199254740991"),
        (
            {"training": {**TRAINING, "adserver": {"epsilon": 4.0, "delta": 1e-5}}},
            "no less epsilon and delta",
        ),
        (
            {"budget": {"epsilon": 8.0, "delta": 1e-8}, "training": TRAINING},
            "more delta than its whole budget",
        ),
        (
            {"training": {"adserver": {"epsilon": 4.0}, "coalition": {"epsilon": 40.0, "delta": 1e-6}}},
            "Gaussian noise of gradient",
        ),
        (
            {"models": [{**settings()["models"][1], "labels": [{"kind": "integers", "low": 0, "high": 5}]}]},
            "name it with 'value'",
        ),
        (
            {
                "models": [{**settings()["models"][0], "labels": [{"kind": "binary", "value": "profit"}]}],
                "decoys": [],
                "fake_rate": 0.0,
            },
            "no declared value",
        ),
    ],
)
def test_settings_at_the_edge_are_refused(changes, reason):
    with pytest.raises(InvalidDocument, match=reason):
        make(**changes)


@pytest.mark.parametrize("document", ["\ud800", "[" * 100_000])
def test_envelopes_that_are_no_text_or_nested_without_end_are_refused(document):
    signature = "00" * 64
    item = {"document": document, "origin_signature": signature, "service_signature": None}
    for data in (json.dumps(item).encode(), document.encode("utf-8", "surrogatepass")):
        with pytest.raises(InvalidDocument):
            chain.decode(data).claimed()


def test_a_signature_has_one_spelling():
    signed = chain.sign(make(), DOCUMENT_KEY)
    good = json.loads(signed.encode())
    for spelled in (good["origin_signature"].upper(), " " + good["origin_signature"]):
        with pytest.raises(InvalidDocument, match="lower-case"):
            chain.decode(json.dumps({**good, "origin_signature": spelled}).encode())


def test_a_chain_is_of_the_origin_that_was_asked_for():
    signed = chain.countersign(chain.sign(make(), DOCUMENT_KEY), SERVICE_KEY)
    with pytest.raises(BrokenChain, match="not of other"):
        chain.verify([signed], "other.example", DOCUMENT_KEY.verifying, SERVICE_KEY.verifying)


def test_a_policy_may_insist_on_the_whole_label_space():
    paired = make(models=[{**settings()["models"][0], "candidates": "pair"}], decoys=[], fake_rate=0.0)
    POLICY.check(paired)
    with pytest.raises(CandidatesLeak, match="clicks"):
        POLICY.model_copy(update={"whole_label_space": True}).check(paired)
