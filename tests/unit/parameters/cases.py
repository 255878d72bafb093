"""A document that holds together, to be changed by tests."""

import json
from typing import Any

from maskedlark.parameters import document
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness
from maskedlark.wire.signatures import SigningKey

DOCUMENT_KEY = SigningKey(FixedRandomness(b"origin").bytes(32))
REQUEST_KEY = SigningKey(FixedRandomness(b"origin, requests").bytes(32))
SERVICE_KEY = SigningKey(FixedRandomness(b"service").bytes(32))
HELPER_KEYS = [SigningKey(FixedRandomness(f"helper {i}".encode()).bytes(32)) for i in range(3)]


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "format": 3,
        "origin": "ads.example",
        "version": 1,
        "previous": None,
        "not_after": 2_000_000_000,
        "document_key": DOCUMENT_KEY.verifying.public.hex(),
        "request_key": REQUEST_KEY.verifying.public.hex(),
        "helpers": [
            {"name": f"helper-{i}", "identity": key.verifying.public.hex()}
            for i, key in enumerate(HELPER_KEYS[:2])
        ],
        "k": 50,
        "budget": {"epsilon": 8.0, "delta": 1e-6},
        "training": {
            "adserver": {"epsilon": 4.0, "delta": 1e-6},
            "coalition": {"epsilon": 32.0, "delta": 1e-6},
        },
        "mechanisms": {
            "sums": {"kind": "laplace", "noise_floor": 1.0},
            "gradient": {"kind": "gaussian", "noise_floor": 0.5},
            "cells": {"kind": "gaussian", "noise_floor": 0.5},
        },
        "max_records": 1 << 24,
        "keys": ["campaign", "place"],
        "values": [{"name": "purchase", "low": 0, "high": 50_000}, {"name": "visit", "low": 0, "high": 1}],
        "models": [
            {
                "tag": "clicks",
                "columns": [{"kind": "bytes", "count": 4}],
                "labels": [{"kind": "binary"}],
                "gradient_bound": 1.0,
            },
            {
                "tag": "basket",
                "columns": [{"kind": "bytes", "count": 2}],
                "labels": [{"kind": "reals", "value": "purchase", "low": 0, "high": 100, "buckets": 10}],
                "gradient_bound": 2.0,
            },
        ],
        "decoys": [
            {"keys": {"campaign": "spring", "place": 7}},
            {"tag": "clicks", "columns": "00ff80aa"},
            {"tag": "basket", "columns": "0102"},
        ],
        "fake_rate": 0.2,
        "attribution_window_s": 7 * 86_400,
        "delay": {"kind": "uniform", "max_s": 86_400},
        "report_lifetime_s": 30 * 86_400,
        **changes,
    }


def make(**changes: Any) -> Document:
    return document.parse(json.dumps(settings(**changes)))
