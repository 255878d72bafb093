"""`maskedlark parameters`: make keys; draft, sign, publish, show and verify documents; run the service."""

import json
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from typer import Argument, Option

from maskedlark.cli import chains, options
from maskedlark.cli.error_handling import command, group
from maskedlark.cli.options import Json, Listen, Service, ServiceKey, Text, serve_command
from maskedlark.cli.output import print_result
from maskedlark.clock import SystemClock
from maskedlark.errors import BadSignature, InvalidDocument
from maskedlark.features import Encoder
from maskedlark.features.csv_file import read_csv
from maskedlark.parameter_service import config as configuration
from maskedlark.parameter_service.app import JSON, create_app
from maskedlark.parameter_service.config import Config
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain, document
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.decoys import of_document
from maskedlark.parameters.document import Document, Origin
from maskedlark.parameters.drafting import draft as draft_document
from maskedlark.parameters.meaning import WARNING, meaning
from maskedlark.parameters.settings import Name
from maskedlark.randomness import SystemRandomness
from maskedlark.web import files, key_file, pages, skeleton
from maskedlark.web.errors import UnknownDocument
from maskedlark.web.remote import API, Remote
from maskedlark.wire.signatures import VerifyingKey

KEY = "service.key"
app = group("parameters", "sign draft.json --key document.key --out signed.json")

OriginKey = Annotated[str, Option("--origin-key", help="The document key that signed the first document.")]
Cache = Annotated[
    Path | None, Option("--cache", help="Where to remember what was seen, so that going back is noticed.")
]
Out = Annotated[Path | None, Option("--out", help="Write it to this file.")]


@command(app, "keys document.key")
def keys(
    path: Annotated[Path, Argument(help="The new file; only you will be able to read it.")],
    as_json: Json = False,
) -> None:
    """Make a key: of documents, of requests, a helper's or the service's. Prints its public half."""
    public = key_file.create(path, SystemRandomness()).verifying.public.hex()
    print_result({"file": str(path), "public_key": public}, as_json, public)


@command(app, "draft settings.toml --document-key 9d61… --request-key request.key --decoys decoys.csv")
def draft(
    settings: Annotated[Path, Argument(help="A short TOML; what it leaves out gets a default.")],
    document_key: Annotated[Text, Option(help="Signs the next document: its public half or file.")] = None,
    request_key: Annotated[Text, Option(help="Signs requests to helpers: its public half or file.")] = None,
    previous: Annotated[Path | None, Option(help="The published document that this one follows.")] = None,
    decoys: Annotated[Path | None, Option(help="A CSV of rows for fakes: they become public.")] = None,
    encoder: Annotated[
        list[Path],
        Option(help="An encoder that a model names; without --decoys it makes rows up. Repeatable."),
    ] = [],  # noqa: B006
    out: Out = None,
) -> None:
    """Draft a whole document from a short TOML, and say what it means. A key that is not given stays."""
    keys = _declared(document_key), _declared(request_key)
    fakes = partial(of_document, read_csv(decoys) if decoys else None, [*map(Encoder.load, encoder)])
    before = chain.decode(previous.read_bytes()).claimed() if previous else None
    drafted = draft_document(_text(settings), *keys, before, SystemClock().now(), fakes)
    _deliver(out, drafted, drafted.encode())


@command(app, "sign draft.json --key document.key --out signed.json")
def sign(
    drafted: Annotated[Path, Argument(help="The draft.")],
    key: Annotated[Path, Option(help="The file of the document key.")],
    out: Out = None,
) -> None:
    """Sign a draft, and say what it means. Needs no network: run it where the document key is."""
    parsed = document.parse(drafted.read_bytes())
    _deliver(out, parsed, chain.sign(parsed, key_file.read(key)).encode())


@command(app, "publish signed.json --service http://127.0.0.1:8000 --service-key 3b6a… --out published.json")
def publish(
    file: Annotated[Path, Argument(help="What `sign` wrote; or a draft, with --key.")],
    service: Service,
    service_key: ServiceKey,
    key: Annotated[Path | None, Option(help="The file of the document key, to sign a draft here.")] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Publish a signed document. Safe to repeat: the same document is published once."""
    handed = _handed(file.read_bytes(), key)
    try:
        with Remote(service) as remote:
            published = chain.decode(remote.post(f"{API}/documents", handed.encode(), JSON))
    except BadSignature as error:
        raise BadSignature(
            f"{error}: sign with the document key that the version before declares, version 1 with the one "
            "that the service pinned; the request key signs no documents"
        ) from None
    published.published(key_file.public(service_key))
    if published.body != handed.body:
        raise InvalidDocument("the service answered with another document than the one handed in")
    if out is not None:
        files.write(out, published.encode())
    claimed = published.claimed()
    fields = {"origin": claimed.origin, "version": claimed.version, "digest": claimed.digest.hex()}
    print_result(fields, as_json, "published version {version} of {origin}, digest {digest}".format(**fields))


@command(app, "show ads.example --service http://127.0.0.1:8000 --service-key 3b6a… --origin-key 9d61…")
def show(
    origin: Annotated[str, Argument(help="Whose settings.")],
    service: Service,
    service_key: ServiceKey,
    origin_key: OriginKey,
    version: Annotated[int | None, Option(min=1, help="Which version; else the latest.")] = None,
    as_json: Annotated[bool, Option("--json", help="The document itself.")] = False,
    cache: Cache = None,
) -> None:
    """Show an origin's settings in plain words, after verifying its whole chain."""
    with chains.open_client(origin, service, service_key, origin_key, cache) as client:
        shown = client.latest(origin) if version is None else _version(client.chain(origin), version)
    if as_json:
        typer.echo(json.dumps(json.loads(shown.encode()), indent=2, ensure_ascii=False))
    else:
        _explain(Console(highlight=False), shown)


@command(app, "verify ads.example --file chain.json --service-key 3b6a… --origin-key 9d61…")
def verify(
    origin: Annotated[str, Argument(help="Whose chain.")],
    service_key: ServiceKey,
    origin_key: OriginKey,
    service: Annotated[Text, Option(help="Fetch the chain from here …")] = None,
    file: Annotated[Path | None, Option(help="… or read it from a file.")] = None,
    save: Annotated[Path | None, Option(help="Write the verified chain to this file.")] = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Verify every document of an origin: signatures, versions, and that each follows the one before."""
    if (service is None) == (file is None):
        raise typer.BadParameter("give either --service or --file")
    if file is not None:
        signed = list(pages.decode_chain(file.read_bytes()))
    else:
        with chains.open_client(origin, service or "", service_key, origin_key, cache) as client:
            signed = client.signed_chain(origin)
    documents = chains.verify(signed, origin, service_key, origin_key)
    if save is not None:
        files.write(save, pages.encode_chain(signed))
    verified = [{"version": each.version, "digest": each.digest.hex()} for each in documents]
    lines = [f"version {each.version}  {each.digest.hex()}  verified" for each in documents]
    print_result({"origin": origin, "verified": verified}, as_json, *lines)


@command(app, "init parameters --origin ads.example=9d61… --helper helper-0=d75a…")
def init(
    folder: options.NewFolder,
    origins: options.Origins = [],  # noqa: B006 - typer reads it and never changes it
    helpers: Annotated[
        list[str], Option("--helper", help="NAME=KEY of a helper's identity. Repeat for more.")
    ] = [],  # noqa: B006
    key: Annotated[Path | None, Option(help="The service's key, if there is one; else one is made.")] = None,
    as_json: Json = False,
) -> None:
    """Make a folder, settings and a key for the service. Prints the key's public half."""
    pinned = skeleton.pinned("--origin", origins, Origin), skeleton.pinned("--helper", helpers, Name)
    path = skeleton.place(folder, configuration.FILE)
    signing = key_file.read(key) if key else key_file.create(folder / KEY, SystemRandomness())
    skeleton.write(path, configuration.skeleton_text(key.absolute() if key else Path(KEY), *pinned))
    public = signing.verifying.public.hex()
    print_result({"config": str(path), "public_key": public}, as_json, public)
    typer.echo(f"pin origins and helpers in {path}, then run `maskedlark parameters serve`", err=True)


@serve_command(app, "service", "parameters/parameters.toml --port 8000", configuration.read)
def serve(settings: Config, listen: Listen) -> None:
    """Run the parameter service. Prints where it listens; SIGINT or SIGTERM stops it."""
    service_key = key_file.read(settings.key)
    with closing(Store(settings.database)) as store:
        listen(create_app(store, service_key, SystemClock(), settings.pinned))


def _declared(given: str | None) -> VerifyingKey | None:
    """A public key, given directly or as the file of its key."""
    if given is None:
        return None
    return key_file.read(Path(given)).verifying if Path(given).exists() else key_file.public(given)


def _handed(data: bytes, key: Path | None) -> Signed:
    """A signed document, or a draft that is signed here."""
    if key is not None:
        return chain.sign(document.parse(data), key_file.read(key))
    try:
        return chain.decode(data)
    except InvalidDocument as error:
        raise InvalidDocument(f"{error}: sign the draft with `maskedlark parameters sign`") from None


def _version(documents: list[Document], version: int) -> Document:
    if version > len(documents):
        raise UnknownDocument(f"the latest version is {len(documents)}; there is no {version}")
    return documents[version - 1]


def _explain(console: Console, document: Document) -> None:
    columns = Column(style="bold"), Column(overflow="fold")
    table = Table(*columns, show_header=False, box=None, padding=(0, 1))
    for topic, words in meaning(document):
        table.add_row(escape(topic), escape(words), style="bold yellow" if topic == WARNING else None)
    console.print(table)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise InvalidDocument(f"{path} is no text") from None


def _deliver(out: Path | None, document: Document, data: bytes) -> None:
    """Explain a document and write it: to a file, or as the only output on standard output."""
    _explain(Console(stderr=out is None, highlight=False), document)
    if out is None:
        sys.stdout.write(data.decode() + "\n")
    else:
        files.write(out, data)
