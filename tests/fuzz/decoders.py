"""The table of all decoders: what reads bytes of another party, or of a file. What is not in it, and why."""

from functools import cache

from tests.fuzz import of_documents, of_files, of_functions, of_training, of_web, of_wire
from tests.fuzz.running import Decoder

_BITMAPS = "reads bitmaps with wire.datasets.unpack, which is in the table"
_ENDPOINT = "reads the body of a request; fuzzed as an endpoint"
_HASHED = "reads files of this party whose digests it has: a changed one is refused before it is read"
_NAME = "takes a name, and reads nothing"
_OWN = "reads a row that this party wrote itself into its own database"
_KEY = "makes a stream of a key, a seed or ids: any bytes of their length do"
_PLAYED = "reads a file that a simulation wrote into its own folder"
_WRITTEN = "reads what this very process has just written"
EXEMPT = {
    "adserver.app.read_upload": _ENDPOINT,
    "adserver.dataset_store.Datasets.answers": _OWN,
    "adserver.dataset_store.Datasets.checks": _OWN,
    "adserver.freezing._agreed": _BITMAPS,
    "adserver.freezing._heads": _BITMAPS,
    "adserver.sending._check_answer": _BITMAPS,
    "adserver.sending.Sending._chunk": _BITMAPS,
    "audit.attacks.bits": "an attack on bytes that it has made itself",
    "audit.colluding.reading": _OWN,
    "audit.colluding.records": _OWN,
    "browser.reports.noised": "takes features that were checked when the source was registered",
    "browser.store._numbers": _OWN,
    "browser.store._source": _OWN,
    "cli.__init__.load": _NAME,
    "cli.fork_server._next": "reads what the process that started it has just sent",
    "cli.parameters.show": _WRITTEN,
    "cli.query._show": _WRITTEN,
    "core.batches._stream": _KEY,
    "core.sharing.streams": _KEY,
    "core.sharing._from_stream": _KEY,
    "dp.mechanisms._bits": _KEY,
    "exact.device.ready": _NAME,
    "features.kind_text.typed_kind": "takes a word of a command line",
    "helper.backup._copy_columns": _OWN,
    "helper.columns._entries": _HASHED,
    "helper.columns.read": _HASHED,
    "helper.database_anchor.DatabaseAnchor.read": _OWN,
    "helper.dataset_files.read_probe": _WRITTEN,
    "helper.datasets.Datasets._load": _OWN,
    "helper.metrics.HelperCounts.ingested": _WRITTEN,
    "helper.tables.answer": _OWN,
    "helper.datasets._state": _OWN,
    "helper.checking.ChunkChecks._own": _BITMAPS,
    "helper.freezing._valid": _BITMAPS,
    "helper.freezing.agree": _BITMAPS,
    "helper.freezing.AgreedChunk.accepted": _BITMAPS,
    "helper.freezing.AgreedChunk.kept": _BITMAPS,
    "helper.sharding._load": _WRITTEN,
    "cli.chains.verify": "calls parameters.chain.verify, which is in the table",
    "ledger.ledger.Anchor.read": "a protocol: helper.anchor.FileAnchor.read is in the table",
    "simulate.simulation._differing": _PLAYED,
    "simulate.simulation._same": _PLAYED,
    "simulate.cluster._ports": _PLAYED,
    "web.error_responses.read_body": _ENDPOINT,
    "web.body.read": _ENDPOINT,
}
"""Functions that `walk` finds and that have no place in the table. Short, and each with its reason."""


@cache
def table() -> dict[str, Decoder]:
    """By name."""
    rooms = (of_wire, of_documents, of_web, of_files, of_functions, of_training)
    found = [each for room in rooms for each in room.decoders()]
    names = [each.name for each in found]
    assert len(set(names)) == len(names), "two decoders of one name would share their seeds"
    return {each.name: each for each in found}
