"""Decoders of files: what a party wrote itself, or its operator, and a disk or a person may have changed."""

import atexit
import bz2
import gzip
import json
import lzma
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from maskedlark.adserver import config as adserver_config
from maskedlark.cli import query
from maskedlark.cli.receipts import read_lines
from maskedlark.core.declared import Measure, Model
from maskedlark.errors import BadArguments, DecodeError, InvalidDocument
from maskedlark.exact import onnx_model
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.features import Encoder, Hashed, OneHot, table_file
from maskedlark.features.errors import NotAnEncoder, TableDoesNotFit
from maskedlark.helper import backup, chunk_file, keyring
from maskedlark.helper import config as helper_config
from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.dataset_files import LocalFiles, SealedFiles
from maskedlark.helper.errors import BadBackup, DamagedAnchor, DamagedDataset
from maskedlark.helper.keyring import Keyring
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.rows import ChainHead
from maskedlark.parameter_service import config as parameters_config
from maskedlark.parameters.drafting import draft
from maskedlark.randomness import FixedRandomness
from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.storage import engine
from maskedlark.storage.errors import UnsupportedDatabase
from maskedlark.training import network as networks
from maskedlark.web import key_file
from maskedlark.web.caches import ChainCache, KeyCache
from maskedlark.web.errors import BadConfig, BadKeyFile, CorruptCache
from maskedlark.wire.decrypt import decrypt_parts
from tests.fuzz.of_documents import SIGNED, _receipts
from tests.fuzz.of_wire import CHOSEN, _opener, part_of
from tests.fuzz.running import Decoder
from tests.fuzz.trees import ONNX, TOML
from tests.unit.features import tables
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, SERVICE_KEY
from tests.unit.web.service import NOW, configuration

T = TypeVar("T")


@cache
def _folder() -> Path:
    """In memory where there is such a folder: these files need not last."""
    fast = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=fast if fast.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _in_file(name: str, read: Callable[[Path], T]) -> Callable[[bytes], T]:
    """Reads what stands in a file of this name."""

    def decode(data: bytes) -> T:
        path = _folder() / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data)
        path.chmod(0o600)
        return read(path)

    return decode


def _keys() -> list[Decoder]:
    secret = b"maskedlark-signing-key-1 " + b"3c" * 32 + b"\n"
    folder = _folder() / "keyring"
    Keyring(folder, "helper-0").rotate(
        HELPER_KEYS[0], "https://helper-0.example", NOW, FixedRandomness(b"keys")
    )
    stored = (folder / keyring.NAME).read_bytes()
    return [
        Decoder(
            "key file", ("web.key_file.read",), (secret,), _in_file("a.key", key_file.read), (BadKeyFile,)
        ),
        Decoder(
            "keys of a helper",
            ("helper.keyring.read",),
            (stored,),
            _in_file("keyring/keys.json", lambda path: keyring.read(path.parent, "helper-0")),
            (BadKeyFile,),
            weight=0.1,
        ),
    ]


def _caches() -> list[Decoder]:
    def chain(path: Path) -> list[Any]:
        made = ChainCache(path.parent.parent, "ads.example", DOCUMENT_KEY.verifying, SERVICE_KEY.verifying)
        made.load()
        return made.documents

    made = ChainCache(_folder() / "origins", "ads.example", DOCUMENT_KEY.verifying, SERVICE_KEY.verifying)
    where = made.folder.relative_to(_folder())
    seen = ChainCache(_folder() / "seen", "ads.example", DOCUMENT_KEY.verifying, SERVICE_KEY.verifying)
    seen.append(SIGNED[0])
    keys = KeyCache(_folder() / "helpers", "helper-0", HELPER_KEYS[0].verifying)
    return [
        Decoder(
            "cached document",
            ("parameters.chain.decode",),
            (SIGNED[0].encode(),),
            _in_file(f"{where}/1.json", chain),
            (CorruptCache,),
            weight=0.1,
        ),
        Decoder(
            "seen version",
            ("parameters.chain.decode",),
            (b"1\n",),
            _in_file(str(seen.folder.relative_to(_folder()) / "seen"), chain),
            (CorruptCache,),
            weight=0.1,
        ),
        Decoder(
            "cached keys",
            ("wire.keys.verify",),
            (configuration(0, 1),),
            _in_file(str(keys.folder.relative_to(_folder()) / "keys.bin"), lambda _: keys.load()),
            (CorruptCache,),
            weight=0.3,
        ),
    ]


def _kept() -> Decoder:
    """An answer that a helper keeps: whatever its file holds, it is the answer or none."""
    kept = KeptAnswers(_folder() / "answers")
    with kept.room("ads.example", bytes(16), 6) as room:
        kept.write(room, "ads.example", bytes(16), bytes(32), b"answer", 1 << 40)
    [path] = (_folder() / "answers").iterdir()
    whole = path.read_bytes()

    def read(_: object) -> object:
        found = kept.read("ads.example", bytes(16), bytes(32))
        kept.expire(0)
        return found

    return Decoder(
        "kept answer",
        ("release.kept_answers.KeptAnswers.read", "release.kept_answers.KeptAnswers._expire"),
        (whole,),
        _in_file(f"answers/{path.name}", read),
        (),
        lambda data, found: found is None or data[8:] == whole[8:],
        weight=0.4,
    )


def _helper() -> list[Decoder]:
    anchor = FileAnchor(_folder() / "anchor")
    anchor.write("ads.example", ChainHead(7, bytes(32)))
    [mark] = (_folder() / "anchor").glob("*.json")
    found = [
        Decoder(
            "mark of an anchor",
            ("helper.anchor.FileAnchor.read", "helper.anchor.FileAnchor._read"),
            (mark.read_bytes(),),
            _in_file(f"anchor/{mark.name}", lambda _: (anchor.read("ads.example"), anchor.origins())),
            (DamagedAnchor,),
            weight=0.4,
        )
    ]
    found.append(_kept())
    (_folder() / "chunks").mkdir()
    for number, vector in enumerate(CHOSEN):
        opener = _opener(number)
        opened = decrypt_parts(opener, part_of(number) * 3)
        name = chunk_file.write(LocalFiles(_folder() / "chunks"), opened)
        found.append(
            Decoder(
                f"chunk file to {vector['purpose']} {number}",
                ("helper.chunk_file.read", "helper.chunk_file._kept", "helper.chunk_file._reading"),
                ((_folder() / "chunks" / name).read_bytes(),),
                _in_file(f"chunks/{number}", partial(_chunk, opener.layout.declared)),
                (DamagedDataset,),
                weight=0.05,
            )
        )
    checked = replace(opened, checks=np.ones((len(opened.heads), 2), np.int64))
    name = chunk_file.write(LocalFiles(_folder() / "chunks"), checked)
    found.append(
        Decoder(
            "numbers in a chunk file",
            ("helper.chunk_file.read_checks", "helper.chunk_file._reading"),
            ((_folder() / "chunks" / name).read_bytes(),),
            _in_file("chunks/checked", _checks),
            (DamagedDataset,),
            weight=0.05,
        )
    )
    found.append(
        Decoder(
            "ids in a chunk file",
            ("helper.chunk_file.read_ids", "helper.chunk_file._reading"),
            ((_folder() / "chunks" / name).read_bytes(),),
            _in_file("chunks/ids", _ids),
            (DamagedDataset,),
            weight=0.05,
        )
    )
    sealed = SealedFiles(f"file://{_folder()}/chunks", bytes(32))
    sealed.write("sealed", lambda file: file.write(b"columns"))
    found.append(
        Decoder(
            "a sealed file",
            (),
            ((_folder() / "chunks" / "sealed").read_bytes(),),
            _in_file("chunks/sealed", _sealed),
            (DamagedDataset,),
            weight=0.05,
        )
    )
    return found


def _chunk(declared: tuple[Measure | Model, ...], path: Path) -> object:
    models = {each.tag: each for each in declared if isinstance(each, Model)}
    return chunk_file.read(LocalFiles(path.parent), path.name, np.array([True, False, True]), models)


def _checks(path: Path) -> object:
    return chunk_file.read_checks(LocalFiles(path.parent), path.name, np.array([True, False, True]))


def _ids(path: Path) -> object:
    return chunk_file.read_ids(LocalFiles(path.parent), path.name, np.array([True, False, True]))


def _sealed(path: Path) -> object:
    with SealedFiles(f"file://{path.parent}", bytes(32)).open(path.name) as file:
        return file.read()


DRAFT = f"""
origin = "ads.example"
keys = ["campaign"]
valid_days = 30
[helpers]
helper-0 = "{HELPER_KEYS[0].verifying.public.hex()}"
helper-1 = "{HELPER_KEYS[1].verifying.public.hex()}"
[values]
purchase = [0, 50000]
[models.clicks]
columns = [{{kind = "bytes", count = 100}}]
[budget]
epsilon = 8.0
delta = 1e-6
"""


HELPER = f"""
name = "helper-0"
folder = "state"
address = "https://helper-0.example"
parameter_service = "http://127.0.0.1:8000"
service_key = "{SERVICE_KEY.verifying.public.hex()}"
compute.workers = 2
[origins]
"ads.example" = "{DOCUMENT_KEY.verifying.public.hex()}"
[policy]
trusted_helpers = ["{HELPER_KEYS[0].verifying.public.hex()}", "{HELPER_KEYS[1].verifying.public.hex()}"]
max_budget = {{epsilon = 8, delta = 1e-6}}
max_coalition = {{epsilon = 40, delta = 1e-6}}
[serving]
port = 8000
"""
ADSERVER = f"""
origin = "ads.example"
database = "sqlite:///reports.sqlite"
key = "request.key"
cache = "cache"
parameter_service = "https://parameters.example"
service_key = "{SERVICE_KEY.verifying.public.hex()}"
origin_key = "{DOCUMENT_KEY.verifying.public.hex()}"
[limits]
uploads = 64
[serving]
port = 8000
"""
PARAMETERS = f"""
key = "service.key"
database = "sqlite:///parameters.sqlite"
[origins]
"ads.example" = "{DOCUMENT_KEY.verifying.public.hex()}"
[helpers]
"helper-0" = "{HELPER_KEYS[0].verifying.public.hex()}"
[serving]
idle_s = 15.0
"""


def _configs() -> list[Decoder]:
    given: list[tuple[str, str, Callable[[Path], object]]] = [
        ("helper", HELPER, helper_config.read),
        ("adserver", ADSERVER, adserver_config.read),
        ("parameter_service", PARAMETERS, parameters_config.read),
    ]
    return [
        Decoder(
            f"configuration of {party}",
            (f"{party}.config.read", "web.config.read"),
            (text.encode(),),
            _in_file(f"{party}.toml", read),
            (BadConfig,),
            weight=0.3,
            form=TOML,
        )
        for party, text, read in given
    ]


def _settings() -> list[Decoder]:
    def drafted(data: bytes) -> object:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise InvalidDocument("no text") from None
        return draft(text, DOCUMENT_KEY.verifying, REQUEST_KEY.verifying, None, NOW)

    def url(data: bytes) -> object:
        return engine.parse(data.decode(errors="replace"))

    def where(data: bytes) -> object:
        return query.parse_where(data.decode(errors="surrogateescape").split("\n"))

    urls = (b"sqlite:///reports.db", b"postgresql+psycopg://me:word@host:5432/name?sslmode=require")
    filters = (b"campaign=spring,7\nplace=18..30\nage=..9",)
    return [
        Decoder(
            "settings to draft",
            ("parameters.drafting.draft",),
            (DRAFT.encode(),),
            drafted,
            (InvalidDocument,),
            weight=0.3,
            form=TOML,
        ),
        Decoder("address of a database", ("storage.engine.parse",), urls, url, (UnsupportedDatabase,)),
        Decoder("filters", (), filters, where, (BadArguments,)),
    ]


def _backups() -> list[Decoder]:
    file = {"size": 12, "sha256": "0" * 64}
    made = {"format": 1, "helper": "helper-0", "taken": NOW, "database": "sqlite"}
    listed = json.dumps({**made, "files": {"database/helper.sqlite": file, "anchor/a.json": file}}).encode()
    receipts = b"\n".join(each.encode() for each in _receipts())
    return [
        Decoder(
            "manifest of a backup",
            ("helper.backup.read_manifest",),
            (listed,),
            _in_file("backup/manifest.json", lambda path: backup.read_manifest(path.parent, "helper-0")),
            (BadBackup,),
            weight=0.4,
        ),
        Decoder(
            "receipts in a file",
            ("cli.receipts.read_lines",),
            (receipts,),
            _in_file("receipts.jsonl", read_lines),
            (BadReceipt,),
            weight=0.3,
        ),
    ]


def _features() -> list[Decoder]:
    made = Encoder.fit(tables.columns(), {"region": OneHot(), "agent": Hashed(16)})
    return [
        Decoder(
            "encoder",
            ("features.encoder.Encoder.load", "features.encoder.Encoder.from_json"),
            (made.to_json().encode(),),
            _in_file("encoder.json", Encoder.load),
            (DecodeError, NotAnEncoder),
            lambda _, found: Encoder.from_json(found.to_json()).to_json() == found.to_json(),
            0.4,
        ),
        Decoder(
            "table of a user's own",
            ("features.csv_file.read_csv", "features.table_file.read_table"),
            (
                b"a,b\n1,x\n2,y\n",
                b'\xef\xbb\xbfa;b\r\n"1;2";"x\ny"\r\n',
                *(compress(b"a,b\n1,x\n2,y\n") for compress in (gzip.compress, bz2.compress, lzma.compress)),
            ),
            _in_file("table.csv", table_file.read_table),
            (TableDoesNotFit,),
            lambda _, found: len({len(column) for column in found.values()}) == 1,
            0.4,
        ),
    ]


def _models() -> list[Decoder]:
    """A network of two layers as torch writes it, and one as Keras does."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in {
            "w0": (3, 4),
            "b0": (3,),
            "w1": (1, 3),
            "v0": (4, 3),
            "v1": (3, 1),
            "c1": (1,),
        }.items()
    ]
    torch_like = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], "first", transB=1),
        helper.make_node("Relu", ["h"], ["r"], "between"),
        helper.make_node("Gemm", ["r", "w1"], ["y"], "last", transB=1),
    ]
    keras_like = [
        helper.make_node("MatMul", ["x", "v0"], ["h"], "first"),
        helper.make_node("Tanh", ["h"], ["r"], "between"),
        helper.make_node("MatMul", ["r", "v1"], ["s"], "last"),
        helper.make_node("Add", ["s", "c1"], ["t"], "bias"),
        helper.make_node("Sigmoid", ["t"], ["y"], "end"),
    ]
    sklearn_like = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "y"], "own", domain="ai.onnx.ml", classlabels_ints=[0, 1],
            coefficients=[0.5, -1.0, 2.0, 0.25, -0.5, 1.0, -2.0, -0.25], intercepts=[1.0, -1.0],
            post_transform="LOGISTIC",
        )
    ]  # fmt: skip
    examples = tuple(_model(nodes, weights) for nodes in (torch_like, keras_like, sklearn_like))
    covers = ("exact.onnx_model.read", "exact.onnx_graph.Graph.__init__")
    read = partial(onnx_model.read, losses=["bce"])
    beside = ("exact.onnx_model.load", "exact.onnx_external.read_file", "training.network.read_onnx")
    return [
        Decoder(
            "ONNX model with weights beside it",
            beside,
            (_apart(examples[0]),),
            _in_file("model.onnx", partial(networks.read_onnx, loss="bce")),
            (ModelDoesNotFit,),
            weight=0.1,
            form=ONNX,
        ),
        Decoder(
            "ONNX model",
            covers,
            examples,
            read,
            (ModelDoesNotFit,),
            weight=0.1,
            form=ONNX,
        ),
    ]


def _apart(data: bytes) -> bytes:
    """The same model, whose first weight is in a file beside it."""
    model = ModelProto.FromString(data)
    tensor = model.graph.initializer[0]
    (_folder() / "weights").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights", "offset": "0", "length": "48"}.items():
        tensor.external_data.add(key=key, value=value)
    return bytes(model.SerializeToString())


def _model(nodes: list[Any], weights: list[Any]) -> bytes:
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    used = {name for node in nodes for name in node.input}
    kept = [each for each in weights if each.name in used]
    return bytes(helper.make_model(helper.make_graph(nodes, "net", given, made, kept)).SerializeToString())


def decoders() -> list[Decoder]:
    """All of these."""
    return [
        *_keys(),
        *_caches(),
        *_helper(),
        *_configs(),
        *_settings(),
        *_backups(),
        *_features(),
        *_models(),
    ]
