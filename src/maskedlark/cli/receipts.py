"""`maskedlark receipts`: fetch what a helper has signed, and verify it from public documents alone."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from maskedlark.adserver.client import Client
from maskedlark.adserver.remote_helper import MOST_RECEIPTS, fetch_receipts
from maskedlark.adserver.trusted_parameters import naming_keys
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json, say
from maskedlark.clock import SystemClock
from maskedlark.core.near import instead
from maskedlark.ledger import receipt, trail
from maskedlark.ledger.budget import Spent
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import (
    ClosedReceipt,
    OpenedReceipt,
    ReleaseReceipt,
    SealedReceipt,
    SignedReceipt,
)
from maskedlark.ledger.trail import Trail
from maskedlark.parameters import chain
from maskedlark.parameters.document import Document
from maskedlark.web import files, key_file, pages
from maskedlark.web.errors import StrangeAnswer, UnknownDocument, UnknownHelper
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import Remote
from maskedlark.wire.signatures import VerifyingKey

app = typer.Typer(
    name="receipts",
    help="What helpers have answered, signed by them: anyone can fetch it and add up what it cost.",
    epilog="Example: maskedlark receipts kept --config adserver.toml --helper helper-a --out receipts.jsonl",
    no_args_is_help=True,
)
Origin = Annotated[str, typer.Argument(help="Whose reports the answers were about.")]
HelperName = Annotated[str, typer.Option("--helper", help="The helper, by its name in the documents.")]
ServiceKey = Annotated[
    str, typer.Option("--service-key", help="The parameter service's public key, from its operator.")
]
OriginKey = Annotated[
    str, typer.Option("--origin-key", help="The document key that signed the origin's first document.")
]
Most = Annotated[int, typer.Option(min=1, help="Refuse to read more receipts than this.")]
Service = Annotated[str | None, typer.Option("--service", help="The parameter service's address.")]


@app.command(
    epilog="Example: maskedlark receipts fetch ads.example --helper helper-a --service http://127.0.0.1:8000 "
    "--service-key 3b6a… --origin-key 9d61… --out receipts.jsonl --save-chain chain.json"
)
@plainly
def fetch(
    origin: Origin,
    helper: HelperName,
    service: Annotated[str, typer.Option("--service", help="The parameter service's address.")],
    service_key: ServiceKey,
    origin_key: OriginKey,
    out: Annotated[Path, typer.Option("--out", help="Write the receipts here, one a line.")],
    save_chain: Annotated[
        Path | None,
        typer.Option("--save-chain", help="Write the documents here, to verify without a network."),
    ] = None,
    most: Most = MOST_RECEIPTS,
    as_json: Json = False,
) -> None:
    """Fetch a helper's receipts, and the documents that they are verified by. Verifies no receipt."""
    with _client(origin, service, service_key, origin_key) as client:
        found = _fetch(client, origin, helper, most)
        signed = client.signed_chain(origin)
    files.write(out, b"".join(each.encode() + b"\n" for each in found))
    if save_chain is not None:
        files.write(save_chain, pages.encode_chain(signed))
    fields = {"origin": origin, "helper": helper, "receipts": len(found), "out": str(out)}
    say(fields, as_json, f"{len(found)} receipts of {helper} for {origin}, not verified")


@app.command(
    epilog="Example: maskedlark receipts verify ads.example --helper helper-a "
    "--service http://127.0.0.1:8000 --service-key 3b6a… --origin-key 9d61…"
)
@plainly
def verify(
    origin: Origin,
    helper: HelperName,
    service_key: ServiceKey,
    origin_key: OriginKey,
    service: Service = None,
    file: Annotated[Path | None, typer.Option("--file", help="Receipts that were fetched before …")] = None,
    chain_file: Annotated[
        Path | None,
        typer.Option("--chain", help="… and the documents, as `parameters verify --save` has them."),
    ] = None,
    most: Most = MOST_RECEIPTS,
    as_json: Json = False,
) -> None:
    """Verify every receipt of a helper, compute every charge again, and say what a source has cost."""
    if (service is None) != (file is not None and chain_file is not None):
        raise typer.BadParameter("give either --service, or --file and --chain")
    if service is not None:
        with _client(origin, service, service_key, origin_key) as client:
            documents, found = client.chain(origin), _fetch(client, origin, helper, most)
    else:
        assert file is not None
        assert chain_file is not None
        documents = _documents(chain_file, origin, service_key, origin_key)
        found = read_lines(file)
    verified = trail.verify(found, origin, helper, documents)
    say(_fields(verified, documents), as_json, *_report(verified, documents))


@app.command(
    epilog="Example: maskedlark receipts kept --config adserver.toml --helper helper-a --out receipts.jsonl"
)
@plainly
def kept(
    config: Annotated[Path, typer.Option("--config", help="The ad server's adserver.toml.")],
    helper: HelperName,
    out: Annotated[Path, typer.Option("--out", help="Write the receipts here, one a line.")],
    as_json: Json = False,
) -> None:
    """Write down the receipts that the ad server has of a helper: also of one that lost them itself."""
    with Client.from_config(config) as client:
        found = client.receipts(helper)
    files.write(out, b"".join(each.encode() + b"\n" for each in found))
    fields = {"helper": helper, "receipts": len(found), "out": str(out)}
    say(fields, as_json, f"{len(found)} receipts of {helper}")


@contextmanager
def _client(origin: str, service: str, service_key: str, origin_key: str) -> Iterator[ParameterClient]:
    """A client that trusts these two keys, and forgets what it has seen."""
    with tempfile.TemporaryDirectory() as folder:
        pins = {origin: key_file.public(origin_key)}
        key = key_file.public(service_key)
        with (
            ParameterClient(service, key, Path(folder), SystemClock(), pins) as client,
            naming_keys("--service-key", "--origin-key"),
        ):
            yield client


def _fetch(client: ParameterClient, origin: str, helper: str, most: int) -> list[SignedReceipt]:
    """From the helper itself, at the address that its identity signs."""
    identity = _identity(client.chain(origin), helper)
    with Remote(client.keys(helper, identity).address) as remote:
        found = list(fetch_receipts(remote, origin, most=most + 1))
    if len(found) > most:
        raise StrangeAnswer(
            f"{helper} shows more than {most} receipts: if it has so many, give a larger --most"
        )
    return found


def _identity(documents: Sequence[Document], helper: str) -> VerifyingKey:
    """By the newest document that names the helper."""
    for document in reversed(documents):
        for each in document.helpers:
            if each.name == helper:
                return VerifyingKey(bytes.fromhex(each.identity))
    names = sorted({each.name for document in documents for each in document.helpers})
    raise UnknownHelper(f"no document names a helper {helper!r}; {instead(helper, names, 'they name')}")


def _documents(path: Path, origin: str, service_key: str, origin_key: str) -> list[Document]:
    signed = pages.decode_chain(path.read_bytes())
    with naming_keys("--service-key", "--origin-key"):
        found = chain.verify(signed, origin, key_file.public(origin_key), key_file.public(service_key))
    if not found:
        raise UnknownDocument(f"{path} holds no document of {origin}")
    return found


def read_lines(path: Path) -> list[SignedReceipt]:
    """Receipts in a file, one a line. Nothing is verified."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            found.append(receipt.decode(line))
        except BadReceipt as error:
            raise BadReceipt(f"line {number} of {path}: {error}") from None
    return found


def _report(found: Trail, documents: Sequence[Document]) -> list[str]:
    sealed, released = _counts(found)
    sessions = _sessions(found)
    lines = [
        f"{len(found.receipts)} receipts of {found.helper} for {found.origin} verified: {sealed} datasets "
        f"sealed, {released} questions answered, {len(sessions)} training sessions opened"
    ]
    if found.lost:
        lines.append(
            f"{found.lost} receipts were lost, as the helper says: what they cost is not in the sums"
        )
    for each in sessions:
        used = "open" if each["used"] is None else f"closed after {each['used']}"
        lines.append(
            f"session {str(each['request'])[:8]}… of {each['tag']}: {each['steps']} steps, {used}; it was "
            f"charged ε = {each['charged_epsilon']:.6g} when it was opened"
        )
    for document, cost, local in _spent(found, documents):
        budget = document.budget
        lines.append(
            f"version {document.version}: a source has cost at most ε = {cost.epsilon:.6g} "
            f"at δ = {cost.delta:g}, of ε = {budget.epsilon:g} at δ = {budget.delta:g}; "
            f"ε = {cost.coalition:.6g} if all helpers but one joined the ad server"
        )
        if local:
            lines.append(f"and ε = {local:.6g} more, by sums without noise over labels that were randomised")
    return lines


def _fields(found: Trail, documents: Sequence[Document]) -> dict[str, object]:
    """What was verified, for programs."""
    sealed, released = _counts(found)
    spent = [
        {
            "version": document.version,
            "epsilon": cost.epsilon,
            "delta": cost.delta,
            "coalition_epsilon": cost.coalition,
            "local_epsilon": local,
            "budget_epsilon": document.budget.epsilon,
            "budget_delta": document.budget.delta,
        }
        for document, cost, local in _spent(found, documents)
    ]
    return {
        "origin": found.origin,
        "helper": found.helper,
        "receipts": len(found.receipts),
        "datasets_sealed": sealed,
        "questions_answered": released,
        "training_sessions": _sessions(found),
        "receipts_lost": found.lost,
        "spent": spent,
    }


def _counts(found: Trail) -> tuple[int, int]:
    """How many datasets were sealed, and how many questions answered."""
    released = sum(isinstance(each, ReleaseReceipt) for each in found.receipts)
    return sum(isinstance(each, SealedReceipt) for each in found.receipts), released


def _sessions(found: Trail) -> list[dict[str, object]]:
    """Every training session, and how many of its steps were used, if it is closed."""
    used = {each.request: each.used for each in found.receipts if isinstance(each, ClosedReceipt)}
    return [
        {
            "request": each.request,
            "tag": each.tag,
            "steps": each.steps,
            "used": used.get(each.request),
            "charged_epsilon": each.balance.charged_epsilon,
        }
        for each in found.receipts
        if isinstance(each, OpenedReceipt)
    ]


def _spent(found: Trail, documents: Sequence[Document]) -> list[tuple[Document, Spent, float]]:
    """What a source has cost under every document that has receipts; and by sums without noise, beside it."""
    spent, local = found.spent(), found.local()
    named = [(document, document.digest.hex()) for document in documents]
    return [
        (document, spent[digest], local.get(digest, 0.0)) for document, digest in named if digest in spent
    ]
