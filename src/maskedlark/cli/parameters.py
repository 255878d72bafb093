"""`maskedlark parameters`: make keys; draft, sign, publish, show and verify documents; run the service."""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from maskedlark.adserver.trusted import naming
from maskedlark.cli import running
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json, say
from maskedlark.clock import SystemClock
from maskedlark.errors import BadSignature, InvalidDocument
from maskedlark.parameter_service import config as configuration
from maskedlark.parameter_service.app import JSON, create_app
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain, document
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document, Origin
from maskedlark.parameters.drafting import draft as draft_document
from maskedlark.parameters.meaning import WARNING, meaning
from maskedlark.parameters.settings import Name
from maskedlark.randomness import SystemRandomness
from maskedlark.web import files, key_file, pages, serving, skeleton
from maskedlark.web.errors import UnknownDocument
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import Remote
from maskedlark.wire.signatures import VerifyingKey

KEY = "service.key"
app = typer.Typer(
    name="parameters",
    help="Privacy settings that anyone can verify: make keys, draft, sign, publish, show, verify; serve.",
    epilog="Example: maskedlark parameters sign draft.json --key document.key --out signed.json",
    no_args_is_help=True,
)

Service = Annotated[str, typer.Option("--service", help="The parameter service's address.")]
ServiceKey = Annotated[
    str, typer.Option("--service-key", help="The service's public key, from its operator.")
]
OriginKey = Annotated[
    str, typer.Option("--origin-key", help="The document key that signed the first document.")
]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="Where to remember what was seen, so that going back is noticed."),
]
Out = Annotated[Path | None, typer.Option("--out", help="Write it to this file.")]


@app.command(epilog="Example: maskedlark parameters keys document.key")
@plainly
def keys(
    path: Annotated[Path, typer.Argument(help="The new file; only you will be able to read it.")],
    as_json: Json = False,
) -> None:
    """Make a key: of documents, of requests, a helper's or the service's. Prints its public half."""
    public = key_file.create(path, SystemRandomness()).verifying.public.hex()
    say({"file": str(path), "public_key": public}, as_json, public)


@app.command(
    epilog="Example: maskedlark parameters draft settings.toml --document-key 9d61… "
    "--request-key request.key --out draft.json"
)
@plainly
def draft(
    settings: Annotated[Path, typer.Argument(help="A short TOML; what it leaves out gets a default.")],
    document_key: Annotated[
        str | None, typer.Option("--document-key", help="Signs the next document: its public half or file.")
    ] = None,
    request_key: Annotated[
        str | None, typer.Option("--request-key", help="Signs requests to helpers: its public half or file.")
    ] = None,
    previous: Annotated[
        Path | None, typer.Option("--previous", help="The published document that this one follows.")
    ] = None,
    out: Out = None,
) -> None:
    """Draft a whole document from a short TOML, and say what it means. A key that is not given stays."""
    keys = _declared(document_key), _declared(request_key)
    before = chain.decode(previous.read_bytes()).claimed() if previous else None
    drafted = draft_document(_text(settings), *keys, before, SystemClock().now())
    _explain(Console(stderr=out is None, highlight=False), drafted)
    _write(out, drafted.encode())


@app.command(epilog="Example: maskedlark parameters sign draft.json --key document.key --out signed.json")
@plainly
def sign(
    drafted: Annotated[Path, typer.Argument(help="The draft.")],
    key: Annotated[Path, typer.Option("--key", help="The file of the document key.")],
    out: Out = None,
) -> None:
    """Sign a draft, and say what it means. Needs no network: run it where the document key is."""
    found = document.parse(drafted.read_bytes())
    signed = chain.sign(found, key_file.read(key))
    _explain(Console(stderr=out is None, highlight=False), found)
    _write(out, signed.encode())


@app.command(
    epilog="Example: maskedlark parameters publish signed.json "
    "--service http://127.0.0.1:8000 --service-key 3b6a… --out published.json"
)
@plainly
def publish(
    file: Annotated[Path, typer.Argument(help="What `sign` wrote; or a draft, with --key.")],
    service: Service,
    service_key: ServiceKey,
    key: Annotated[
        Path | None, typer.Option("--key", help="The file of the document key, to sign a draft here.")
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Publish a signed document. Safe to repeat: the same document is published once."""
    handed = _handed(file.read_bytes(), key)
    with Remote(service) as remote, _naming_the_signer():
        answer = remote.post("/v1/documents", handed.encode(), JSON)
    published = chain.decode(answer)
    published.published(key_file.public(service_key))
    if published.body != handed.body:
        raise InvalidDocument("the service answered with another document than the one handed in")
    found = published.claimed()
    if out is not None:
        files.write(out, published.encode())
    fields = {"origin": found.origin, "version": found.version, "digest": found.digest.hex()}
    said = f"published version {found.version} of {found.origin}, digest {found.digest.hex()}"
    say(fields, as_json, said)


@app.command(
    epilog="Example: maskedlark parameters show ads.example --service http://127.0.0.1:8000 "
    "--service-key 3b6a… --origin-key 9d61…"
)
@plainly
def show(
    origin: Annotated[str, typer.Argument(help="Whose settings.")],
    service: Service,
    service_key: ServiceKey,
    origin_key: OriginKey,
    version: Annotated[int | None, typer.Option(min=1, help="Which version; else the latest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The document itself.")] = False,
    cache: Cache = None,
) -> None:
    """Show an origin's settings in plain words, after verifying its whole chain."""
    with _client(origin, service, service_key, origin_key, cache) as client:
        found = client.latest(origin) if version is None else _version(client.chain(origin), version)
    if as_json:
        typer.echo(json.dumps(json.loads(found.encode()), indent=2, ensure_ascii=False))
    else:
        _explain(Console(highlight=False), found)


@app.command(
    epilog="Example: maskedlark parameters verify ads.example --file chain.json "
    "--service-key 3b6a… --origin-key 9d61…"
)
@plainly
def verify(
    origin: Annotated[str, typer.Argument(help="Whose chain.")],
    service_key: ServiceKey,
    origin_key: OriginKey,
    service: Annotated[str | None, typer.Option("--service", help="Fetch the chain from here …")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="… or read it from a file.")] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the verified chain to this file.")
    ] = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Verify every document of an origin: signatures, versions, and that each follows the one before."""
    if (service is None) == (file is None):
        raise typer.BadParameter("give either --service or --file")
    if file is not None:
        found = list(pages.decode_chain(file.read_bytes()))
    else:
        with _client(origin, service or "", service_key, origin_key, cache) as client:
            found = client.signed_chain(origin)
    documents = chain.verify(found, origin, key_file.public(origin_key), key_file.public(service_key))
    if not documents:
        raise UnknownDocument(f"the chain holds no document of {origin}")
    if save is not None:
        files.write(save, pages.encode_chain(found))
    verified = [{"version": each.version, "digest": each.digest.hex()} for each in documents]
    lines = [f"version {each.version}  {each.digest.hex()}  verified" for each in documents]
    say({"origin": origin, "verified": verified}, as_json, *lines)


@app.command(
    epilog="Example: maskedlark parameters init parameters --origin ads.example=9d61… --helper helper-0=d75a…"
)
@plainly
def init(
    folder: running.NewFolder,
    origins: running.Origins = [],  # noqa: B006 - typer reads it and never changes it
    helpers: Annotated[
        list[str], typer.Option("--helper", help="NAME=KEY of a helper's identity. Repeat for more.")
    ] = [],  # noqa: B006
    key: Annotated[
        Path | None, typer.Option("--key", help="The service's key, if there is one; else one is made.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a folder, settings and a key for the service. Prints the key's public half."""
    pinned = skeleton.pinned("--origin", origins, Origin), skeleton.pinned("--helper", helpers, Name)
    path = skeleton.place(folder, configuration.FILE)
    signing = key_file.read(key) if key else key_file.create(folder / KEY, SystemRandomness())
    skeleton.write(path, configuration.skeleton_text(key.absolute() if key else Path(KEY), *pinned))
    public = signing.verifying.public.hex()
    say({"config": str(path), "public_key": public}, as_json, public)
    typer.echo(f"pin origins and helpers in {path}, then run `maskedlark parameters serve`", err=True)


@app.command(epilog="Example: maskedlark parameters serve --config parameters/parameters.toml --port 8000")
@plainly
def serve(
    config: Annotated[Path, typer.Option("--config", help="The service's settings, in TOML.")],
    host: running.Host = None,
    port: running.Port = None,
    log_level: running.LogLevel = running.Level.INFO,
) -> None:
    """Run the parameter service. Prints where it listens; SIGINT or SIGTERM stops it."""
    running.begin("parameters", log_level)
    settings = configuration.read(config)
    service_key = key_file.read(settings.key)
    store = Store(settings.database)
    try:
        made = create_app(store, service_key, SystemClock(), settings.pinned)
        serving.serve(made, running.listening(settings.serving, host, port))
    finally:
        store.close()


@contextmanager
def _client(
    origin: str, service: str, service_key: str, origin_key: str, cache: Path | None
) -> Iterator[ParameterClient]:
    """A client that trusts these two keys. Without a cache it forgets what it has seen."""
    with tempfile.TemporaryDirectory() as forgotten:
        pins = {origin: key_file.public(origin_key)}
        folder = cache or Path(forgotten)
        key = key_file.public(service_key)
        with (
            ParameterClient(service, key, folder, SystemClock(), pins) as client,
            naming("--service-key", "--origin-key"),
        ):
            yield client


def _declared(given: str | None) -> VerifyingKey | None:
    """A public key, or that of the key in a file."""
    if given is None:
        return None
    return key_file.read(Path(given)).verifying if Path(given).exists() else key_file.public(given)


def _handed(data: bytes, key: Path | None) -> Signed:
    """What was signed elsewhere; or a draft, signed here."""
    if key is not None:
        return chain.sign(document.parse(data), key_file.read(key))
    try:
        return chain.decode(data)
    except InvalidDocument as error:
        raise InvalidDocument(f"{error}: sign the draft with `maskedlark parameters sign`") from None


@contextmanager
def _naming_the_signer() -> Iterator[None]:
    """Say which key signs a document, if it was another."""
    try:
        yield
    except BadSignature as error:
        raise BadSignature(
            f"{error}: sign with the document key that the version before declares, version 1 with the one "
            "that the service pinned; the request key signs no documents"
        ) from None


def _version(documents: list[Document], version: int) -> Document:
    if version > len(documents):
        raise UnknownDocument(f"the latest version is {len(documents)}; there is no {version}")
    return documents[version - 1]


def _explain(console: Console, found: Document) -> None:
    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for topic, words in meaning(found):
        style = "bold yellow" if topic == WARNING else None
        table.add_row(escape(topic), escape(words), style=style)
    console.print(table)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise InvalidDocument(f"{path} is no text") from None


def _write(out: Path | None, data: bytes) -> None:
    if out is None:
        sys.stdout.write(data.decode() + "\n")
    else:
        files.write(out, data)
