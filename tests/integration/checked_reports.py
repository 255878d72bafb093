"""A chunk of reports that are checked, some of them forged, and what the other helper says of it."""

from pathlib import Path

import numpy as np

from maskedlark.core import validity
from maskedlark.core.purpose import Purpose
from maskedlark.helper import check_keys
from maskedlark.helper.keyring import Keyring
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.release import check_messages
from maskedlark.wire import batch, columns, datasets
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.batch import Envelope
from maskedlark.wire.checks import Checks, encode_relay
from maskedlark.wire.decrypt import decrypt_parts, ids_of
from maskedlark.wire.report import Opener
from tests.unit.helper.cases import Signer
from tests.unit.helper.world import ELSEWHERE, NOW, OTHER, OTHER_DOCUMENT_KEY, OTHER_KEY

COUNT, FORGED = 40, (3, 17)
CHUNK, RELAY = "checked-0", "checked-relay"
DOCUMENT = {
    "origin": OTHER,
    "document_key": OTHER_DOCUMENT_KEY.verifying.public.hex(),
    "request_key": OTHER_KEY.verifying.public.hex(),
    "checks": "bits",
    "max_records": 1 << 20,
}
"""Of an origin of its own, beside the one whose reports are not checked."""


def prepare(folder: Path, document: Document, keyring: Keyring, rng: Randomness) -> None:
    """Write the first helper's chunk, and the second one's check message, as it is relayed."""
    layout, measure = document.layout(Purpose.AGGREGATE), document.measure
    values = [rng.below(50_000, COUNT), rng.below(2, COUNT)]
    secrets = measure.lift(values, np.ones(COUNT, np.bool_))
    sent = np.concatenate([secrets, validity.prove(secrets, layout.declared[0], rng)], axis=1)
    sent[list(FORGED), 0] = 9  # They say that they count nine times.
    shown = columns.aggregate_columns(measure, [["spring"] * COUNT, [7] * COUNT], COUNT)
    own = list(keyring.opening_keys(NOW).values())[-1].sealing
    envelope = Envelope(layout, (own, ELSEWHERE.sealing))
    made = batch.seal_proved(envelope, 0, shown, sent, [NOW // 3600] * COUNT, rng)
    (folder / CHUNK).write_bytes(datasets.encode_chunk(layout.parts(made, 0)))

    key = check_keys.derive(keyring.check_secret, document)
    terms = Terms(document.report_lifetime_s, NOW)
    opener = Opener(layout, 1, {ELSEWHERE.key_id: ELSEWHERE}, terms, key.key)
    opened = decrypt_parts(opener, layout.parts(made, 1).tobytes())
    assert opened.checks is not None
    named = 1, NOW, document.origin, document.digest, key.digest
    checks = Checks(*named, ids_of(opened.heads), opened.checks)
    message = check_messages.sign(checks, Signer(1).current(NOW))
    (folder / RELAY).write_bytes(encode_relay([message]))
