"""The edits. Each breaks one promise, and names the tests that have to notice."""

from typing import NamedTuple

PRIVACY = "src/maskedlark/privacy/"
HELPER = "src/maskedlark/helper/"
STORAGE = "src/maskedlark/storage/"
WIRE = "src/maskedlark/wire/"
WEB = "src/maskedlark/web/"


class Mutant(NamedTuple):
    """An edit of one file, and where it has to be noticed."""

    promise: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = (
    Mutant(
        "the policy: what sums without noise tell counts too",
        PRIVACY + "policy.py",
        "local = randomised.epsilon(document)",
        "local = 0.0",
        "tests/unit/privacy/test_policy.py",
    ),
    Mutant(
        "the policy: what a coalition may learn counts aggregation too",
        PRIVACY + "policy.py",
        'purposes = {"to aggregate": document.budget} if document.values else {}',
        'purposes = {} if document.models else {"to aggregate": document.budget}',
        "tests/unit/privacy/test_policy.py",
    ),
    Mutant(
        "the noise: coarse steps count to both sides of a record's absence",
        PRIVACY + "gaussian.py",
        "l2 + 2 * math.sqrt(touched)",
        "l2 + math.sqrt(touched)",
        "tests/unit/privacy/test_mechanisms.py",
    ),
    Mutant(
        "a label: is quantised once, and then randomised",
        "src/maskedlark/core/declared.py",
        "drawn.append(self.policy.draw(space, label, real, rng))",
        "drawn.append(self.policy.draw(space, space.quantise(label, rng), real, rng))",
        "tests/statistical/test_reported_labels.py",
    ),
    Mutant(
        "a session: without noise only where helpers may",
        PRIVACY + "steps.py",
        "            randomised.check(document, request.tag)\n            return None",
        "            return None",
        "tests/unit/privacy/test_randomised.py",
    ),
    Mutant(
        "a session: without noise only over records that are private by themselves",
        PRIVACY + "opening.py",
        "(lacking := randomised.missing(document, receipt.tag)) is not None",
        "(lacking := None) is not None",
        "tests/unit/privacy/test_session_trail.py",
    ),
    Mutant(
        "k: a dataset of fewer records is not released",
        PRIVACY + "release.py",
        "if records < document.k:",
        "if records < 0:",
        "tests/unit/privacy/test_release.py",
    ),
    Mutant(
        "k: rows of fewer records are dropped",
        PRIVACY + "release.py",
        "table.records >= asked.document.k",
        "table.records >= 0",
        "tests/unit/privacy/test_release.py",
    ),
    Mutant(
        "the charge: comes before anything is computed",
        PRIVACY + "release.py",
        "line = self._ledger.charge(asked.document, charging)\n        tables = self._share(asked)",
        "tables = self._share(asked)\n        line = self._ledger.charge(asked.document, charging)",
        "tests/unit/privacy/test_release.py",
    ),
    Mutant(
        "the charge: counts every column",
        PRIVACY + "release.py",
        "len(self.question.columns))",
        "len(self.question.plans))",
        "tests/unit/privacy/test_release.py",
    ),
    Mutant(
        "the charge: over the budget is refused",
        PRIVACY + "ledger.py",
        "if account.fits(entry):",
        "if True:",
        "tests/unit/privacy/test_ledger.py",
    ),
    Mutant(
        "the charge: streams of a source add up",
        PRIVACY + "budget.py",
        "spent = _sum(streams.values()).adserver <=",
        "spent = _dearest(streams.values()).adserver <=",
        "tests/unit/privacy/test_ledger.py",
    ),
    Mutant(
        "the charge: a list of datasets charges each",
        PRIVACY + "budget.py",
        "places = [_Place(change.stream, dataset) for dataset in change.datasets]",
        "places = [_Place(change.stream, dataset) for dataset in change.datasets[:1]]",
        "tests/unit/privacy/test_ledger.py",
    ),
    Mutant(
        "the charge: writers of one chain take turns",
        PRIVACY + "ledger.py",
        ".with_for_update()",
        "",
        "tests/unit/privacy/test_ledger.py",
    ),
    Mutant(
        "a session: is within what training may cost against a coalition",
        PRIVACY + "budget.py",
        "return spent and training.within(self._ceilings()) and self._delta_fits(entry)",
        "return spent and self._delta_fits(entry)",
        "tests/unit/privacy/test_sessions.py",
    ),
    Mutant(
        "a session: has its own δ",
        PRIVACY + "budget.py",
        "return spent and training.within(self._ceilings()) and self._delta_fits(entry)",
        "return spent and training.within(self._ceilings())",
        "tests/unit/privacy/test_sessions.py",
    ),
    Mutant(
        "a session: no other has its slots",
        PRIVACY + "slots.py",
        "values(next=first + steps)",
        "values(next=first)",
        "tests/unit/privacy/test_sessions.py",
    ),
    Mutant(
        "a session: takes no step once it is closed",
        PRIVACY + "sessions.py",
        "if stored.closed is not None and slots.taken(",
        "if False and slots.taken(",
        "tests/unit/privacy/test_sessions.py",
    ),
    Mutant(
        "a step: is one body's for ever",
        PRIVACY + "slots.py",
        "if taken(connection, origin, session, step) != body:",
        "if False:",
        "tests/unit/privacy/test_sessions.py",
    ),
    Mutant(
        "a step: has noise of its own",
        PRIVACY + "sessions.py",
        '_LABEL + seed + step.to_bytes(8, "big") + body',
        "_LABEL + seed + body",
        "tests/unit/privacy/test_sessions.py",
    ),
    Mutant(
        "a course: noise is in units of the full sensitivity",
        PRIVACY + "course.py",
        "standard_deviation=2 * noise",
        "standard_deviation=4 * noise",
        "tests/unit/privacy/test_course.py",
    ),
    Mutant(
        "a course: an early end is paid for",
        PRIVACY + "course.py",
        "delta = closed.course, _END * closed.course.delta",
        "delta = closed.course, closed.course.delta",
        "tests/unit/privacy/test_course.py",
    ),
    Mutant(
        "a course: says a number of batches that is no secret",
        PRIVACY + "opening.py",
        "course.batches >= least",
        "True",
        "tests/unit/privacy/test_session_trail.py",
    ),
    Mutant(
        "a step: over a batch below k, the sum is not in its answer",
        PRIVACY + "steps.py",
        "if enough else np.zeros(share.shape[1], np.int64)",
        "if enough or True else np.zeros(share.shape[1], np.int64)",
        "tests/unit/privacy/test_steps.py",
    ),
    Mutant(
        "a backup: its ledger answers nothing before it is recovered",
        PRIVACY + "recovered.py",
        "    if is_copy(connection):\n        raise LedgerBehind(",
        "    if False:\n        raise LedgerBehind(",
        "tests/unit/privacy/test_recovered.py",
    ),
    Mutant(
        "a recovery: reports that it may have taken before are not taken again",
        HELPER + "recovery.py",
        "hour_of(max(self.clock.now(), watermark, *times)) + MOST_HOURS_AHEAD",
        "hour_of(self.clock.now()) - MOST_HOURS_AHEAD",
        "tests/unit/helper/test_recovery.py",
    ),
    Mutant(
        "the retention: a dataset that is being sent keeps its reports",
        STORAGE + "retention.py",
        "for each in sorted(same, key=lambda each: each.start):",
        "for each in ():",
        "tests/unit/storage/test_retention.py",
    ),
    Mutant(
        "the noise: is added",
        PRIVACY + "release.py",
        "return field.add(np.ascontiguousarray(share), field.from_signed(noise).reshape(share.shape))",
        "return np.ascontiguousarray(share) if noise.size else share",
        "tests/unit/privacy/test_release.py",
    ),
    Mutant(
        "the noise: of the whole scale",
        PRIVACY + "mechanisms.py",
        "return Laplace(float(noise), sensitivity.l1)",
        "return Laplace(float(noise) / 2, sensitivity.l1)",
        "tests/unit/privacy/test_mechanisms.py tests/statistical/test_noise.py",
    ),
    Mutant(
        "the noise: is not below the floor",
        PRIVACY + "release.py",
        "if request.noise < mechanism.noise_floor:",
        "if request.noise < 0:",
        "tests/unit/privacy/test_release.py",
    ),
    Mutant(
        "the noise: every column has its own",
        PRIVACY + "release.py",
        'column.to_bytes(4, "big")',
        '(0).to_bytes(4, "big")',
        "tests/unit/privacy/test_release.py",
    ),
    Mutant(
        "the seed: a question that comes again gets its own",
        PRIVACY + "lines.py",
        "    return Line(signed, bytes(row.seed))",
        "    return Line(signed, bytes(32))",
        "tests/unit/privacy/test_ledger.py",
    ),
    Mutant(
        "the seed: another question under an id is refused",
        PRIVACY + "lines.py",
        "if bytes(row.question) != charging.question:",
        "if False:",
        "tests/unit/privacy/test_ledger.py",
    ),
    Mutant(
        "the seed: is fresh for every question",
        PRIVACY + "ledger.py",
        "seed = self._rng.bytes(SEED_BYTES)",
        "seed = bytes(SEED_BYTES)",
        "tests/unit/privacy/test_ledger.py",
    ),
    Mutant(
        "the anchor: an old ledger is refused",
        PRIVACY + "lines.py",
        "if digest_at(connection, origin, mark.number) != mark.digest:",
        "if False:",
        "tests/unit/privacy/test_ledger.py",
    ),
    Mutant(
        "the signature: of a request is verified",
        WEB + "gate.py",
        "key.verify_raw(signed.base, signature)",
        "pass",
        "tests/unit/web/test_gate.py",
    ),
    Mutant(
        "the signature: of a receipt is verified",
        PRIVACY + "receipt.py",
        "_verify(VerifyingKey(bytes.fromhex(certificate.key)), RECEIPT_LABEL, body, self.signature)",
        "pass",
        "tests/unit/privacy/test_trail.py",
    ),
    Mutant(
        "the signature: of a document is verified",
        PRIVACY + "chain.py",
        "document_key.verify(ORIGIN_LABEL, self.body, self.origin_signature)",
        "pass",
        "tests/unit/privacy/test_chain.py",
    ),
    Mutant(
        "a document: is signed by the document key, not by the one that signs requests",
        PRIVACY + "chain.py",
        "bytes.fromhex(before.document_key)",
        "bytes.fromhex(before.request_key)",
        "tests/unit/privacy/test_chain.py",
    ),
    Mutant(
        "a request: is signed by the request key, not by the one that signs documents",
        HELPER + "signers.py",
        "self._chain(origin)[-1].request_key",
        "self._chain(origin)[-1].document_key",
        "tests/unit/helper/test_signers.py",
    ),
    Mutant(
        "the padding: is all zero",
        WIRE + "payload.py",
        "if any(padded[end:]):",
        "if False:",
        "tests/unit/wire tests/vectors tests/property/test_opening.py",
    ),
    Mutant(
        "the column hash: binds the columns (one at a time)",
        WIRE + "payload.py",
        "if columns.digest(encoded, salt, purpose) != column_hash:",
        "if False:",
        "tests/unit/wire tests/vectors tests/property/test_opening.py",
    ),
    Mutant(
        "the column hash: binds the columns (many at once)",
        WIRE + "payloads.py",
        "np.all(found == self._hashes[index], axis=1)",
        "np.ones(len(index), np.bool_)",
        "tests/unit/wire tests/property/test_opening.py",
    ),
    Mutant(
        "the replay check: a report is in one dataset",
        HELPER + "intake.py",
        "replayed = self._shelf.ids.taken(connection, mark, taken.ids) & ~past",
        "replayed = np.zeros(len(taken.ids), np.bool_)",
        "tests/unit/helper/test_datasets.py",
    ),
    Mutant(
        "the agreement: a seal has only what this helper accepted",
        HELPER + "sealing.py",
        "if (kept & ~chunk.accepted).any():",
        "if False:",
        "tests/unit/helper/test_datasets.py",
    ),
    Mutant(
        "the lifetime: a report past it is refused",
        WIRE + "terms.py",
        "if left_s <= self.least_life_s:",
        "if False:",
        "tests/unit/wire/test_opening.py tests/property/test_opening.py",
    ),
    Mutant(
        "the signature: covers the body",
        WEB + "gate.py",
        "if hashlib.sha256(found).digest() != self.digest:",
        "if False:",
        "tests/unit/web/test_gate.py",
    ),
    Mutant(
        "the sensitivity: reaches to 0",
        PRIVACY + "settings.py",
        "return max(self.high, 0) - min(self.low, 0)",
        "return max(1, self.high - self.low)",
        "tests/unit/functions tests/unit/privacy",
    ),
)
