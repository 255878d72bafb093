"""`maskedlark receipts`: fetch what a helper has signed, and verify it from public documents alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from maskedlark.adserver.client import Client
from maskedlark.adserver.remote_helper import MAX_RECEIPTS, fetch_receipts
from maskedlark.adserver.spending import spending
from maskedlark.cli.chains import open_client
from maskedlark.cli.chains import verify as verify_chain
from maskedlark.cli.error_handling import command, group
from maskedlark.cli.options import AdServerConfig, Json, Service, ServiceOrNone
from maskedlark.cli.output import print_result
from maskedlark.core.suggestions import did_you_mean
from maskedlark.ledger import receipt, receipt_verification
from maskedlark.ledger.budget import EpsilonPair
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.ledger.receipt_verification import ReceiptVerifier
from maskedlark.ledger.wording import both
from maskedlark.parameters.document import Document
from maskedlark.web import files, pages
from maskedlark.web.errors import StrangeAnswer, UnknownHelper
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import Remote
from maskedlark.wire.signatures import VerifyingKey

app = group("receipts", "kept --config adserver.toml --helper helper-a --out receipts.jsonl")
Origin = Annotated[str, Argument(help="Whose reports the answers were about.")]
HelperName = Annotated[str, Option("--helper", help="The helper, by its name in the documents.")]
ServiceKey = Annotated[
    str, Option("--service-key", help="The parameter service's public key, from its operator.")
]
OriginKey = Annotated[
    str, Option("--origin-key", help="The document key that signed the origin's first document.")
]
Most = Annotated[int, Option(min=1, help="Refuse to read more receipts than this.")]


@command(
    app,
    "fetch ads.example --helper helper-a --service http://127.0.0.1:8000 --service-key 3b6a… "
    "--origin-key 9d61… --out receipts.jsonl --save-chain chain.json",
)
def fetch(
    origin: Origin,
    helper: HelperName,
    service: Service,
    service_key: ServiceKey,
    origin_key: OriginKey,
    out: Annotated[Path, Option(help="Write the receipts here, one a line.")],
    save_chain: Annotated[
        Path | None, Option(help="Write the documents here, to verify without a network.")
    ] = None,
    most: Most = MAX_RECEIPTS,
    as_json: Json = False,
) -> None:
    """Fetch a helper's receipts, and the documents that they are verified by. Verifies no receipt."""
    with open_client(origin, service, service_key, origin_key) as client:
        receipts, signed = _fetch(client, origin, helper, most), client.signed_chain(origin)
    _write(out, receipts)
    if save_chain is not None:
        files.write(save_chain, pages.encode_chain(signed))
    fields = {"origin": origin, "helper": helper, "receipts": len(receipts), "out": str(out)}
    print_result(fields, as_json, f"{len(receipts)} receipts of {helper} for {origin}, not verified")


@command(
    app,
    "verify ads.example --helper helper-a --service http://127.0.0.1:8000 --service-key 3b6a… "
    "--origin-key 9d61…",
)
def verify(
    origin: Origin,
    helper: HelperName,
    service_key: ServiceKey,
    origin_key: OriginKey,
    service: ServiceOrNone = None,
    file: Annotated[Path | None, Option(help="Receipts that were fetched before …")] = None,
    chain_file: Annotated[
        Path | None, Option("--chain", help="… and the documents, as `parameters verify --save` has them.")
    ] = None,
    most: Most = MAX_RECEIPTS,
    as_json: Json = False,
) -> None:
    """Verify every receipt of a helper, compute every charge again, and say what a source has cost."""
    if service is None and file is not None and chain_file is not None:
        signed = pages.decode_chain(chain_file.read_bytes())
        documents, receipts = verify_chain(signed, origin, service_key, origin_key), read_lines(file)
    elif service is not None and (file is None or chain_file is None):
        with open_client(origin, service, service_key, origin_key) as client:
            documents, receipts = client.chain(origin), _fetch(client, origin, helper, most)
    else:
        raise typer.BadParameter("give either --service, or --file and --chain")
    fields = _fields(receipt_verification.verify(receipts, origin, helper, documents), documents)
    print_result(fields, as_json, *_lines(fields))


@command(app, "kept --config adserver.toml --helper helper-a --out receipts.jsonl")
def kept(
    config: AdServerConfig,
    helper: HelperName,
    out: Annotated[Path, Option(help="Write the receipts here, one a line.")],
    as_json: Json = False,
) -> None:
    """Write down the receipts that the ad server has of a helper: also of one that lost them itself."""
    with Client.from_config(config) as client:
        receipts = client.receipts(helper)
    _write(out, receipts)
    fields = {"helper": helper, "receipts": len(receipts), "out": str(out)}
    print_result(fields, as_json, f"{len(receipts)} receipts of {helper}")


def _fetch(client: ParameterClient, origin: str, helper: str, most: int) -> list[SignedReceipt]:
    """Fetch from the helper, at the address signed by its identity in the newest document."""
    identities = {each.name: each.identity for document in client.chain(origin) for each in document.helpers}
    if helper not in identities:
        known = did_you_mean(helper, sorted(identities), "they name")
        raise UnknownHelper(f"no document names a helper {helper!r}; {known}")
    identity = VerifyingKey(bytes.fromhex(identities[helper]))
    with Remote(client.keys(helper, identity).address) as remote:
        receipts = list(fetch_receipts(remote, origin, most=most + 1))
    if len(receipts) > most:
        raise StrangeAnswer(
            f"{helper} shows more than {most} receipts: if it has so many, give a larger --most"
        )
    return receipts


def read_lines(path: Path) -> list[SignedReceipt]:
    """Receipts in a file, one per line. Nothing is verified."""
    receipts = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            receipts.append(receipt.decode(line))
        except BadReceipt as error:
            raise BadReceipt(f"line {number} of {path}: {error}") from None
    return receipts


def _write(path: Path, receipts: Sequence[SignedReceipt]) -> None:
    files.write(path, b"".join(each.encode() + b"\n" for each in receipts))


def _fields(verified: ReceiptVerifier, documents: Sequence[Document]) -> dict[str, Any]:
    """What was verified: every session, with its used steps if closed; and, for every document with
    receipts, the cost of a source, and separately that of sums without noise."""
    receipts, spent, local = verified.receipts, verified.spent(), verified.local()
    used = {each.request: each.used_steps for each in receipts if isinstance(each, receipt.ClosedReceipt)}
    opened = [each for each in receipts if isinstance(each, receipt.OpenedReceipt)]
    frozen = [each for each in receipts if isinstance(each, receipt.FrozenReceipt)]
    charges = {document.digest.hex(): _charged(verified, document) for document in documents}
    costs = [
        {
            "version": document.version,
            "epsilon": spent[digest].epsilon,
            "delta": spent[digest].delta,
            "coalition_epsilon": spent[digest].coalition,
            "local_epsilon": local.get(digest, 0.0),
            "budget_epsilon": document.budget.epsilon,
            "budget_delta": document.budget.delta,
        }
        for document in documents
        if (digest := document.digest.hex()) in spent
    ]
    return {
        "origin": verified.origin,
        "helper": verified.helper,
        "receipts": len(receipts),
        "datasets_frozen": len(frozen),
        "reports_not_valid": sum(each.invalid or 0 for each in frozen),
        "queries_answered": sum(isinstance(each, receipt.ReleaseReceipt) for each in receipts),
        "training_sessions": [
            _session(each, used.get(each.request), charges[each.parameters][each.number]) for each in opened
        ],
        "receipts_lost": verified.lost,
        "spent": costs,
    }


def _charged(verified: ReceiptVerifier, document: Document) -> dict[int, EpsilonPair]:
    """What each receipt under a document cost."""
    spent = spending(verified.helper, document, verified.receipts)
    return {each.number: each.epsilon for each in spent.entries}


def _session(opened: receipt.OpenedReceipt, used: int | None, charged: EpsilonPair) -> dict[str, Any]:
    said = opened.model_dump(include={"request", "tag", "steps"})
    figures = {"charged_epsilon": charged.adserver, "charged_coalition_epsilon": charged.coalition}
    return {**said, "used": used, **figures}


def _counted(count: int, noun: str, several: str = "") -> str:
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def _lines(fields: dict[str, Any]) -> Iterator[str]:
    """The same for a reader."""
    sessions = fields["training_sessions"]
    yield (
        f"{_counted(fields['receipts'], 'receipt')} of {fields['helper']} for {fields['origin']} verified: "
        f"{_counted(fields['datasets_frozen'], 'dataset')} frozen, "
        f"{_counted(fields['queries_answered'], 'query', 'queries')} answered, "
        f"{_counted(len(sessions), 'training session')} opened"
    )
    if invalid := fields["reports_not_valid"]:
        yield f"{_counted(invalid, 'report')} {'was' if invalid == 1 else 'were'} left out as not valid"
    if lost := fields["receipts_lost"]:
        yield f"{lost} receipts were lost, as the helper says: what they cost is not in the sums"
    for each in sessions:
        used = "charged in full" if each["used"] is None else f"closed after {each['used']}"
        figures = both(each["charged_epsilon"], each["charged_coalition_epsilon"])
        charged = f"it was charged ε = {figures} when it was opened"
        yield f"session {each['request'][:8]}… of {each['tag']}: {each['steps']} steps, {used}; {charged}"
    for cost in fields["spent"]:
        yield (
            "version {version}: a source has cost at most ε = {epsilon:.6g} at δ = {delta:g}, of "
            "ε = {budget_epsilon:g} at δ = {budget_delta:g}; ε = {coalition_epsilon:.6g} if all helpers but "
            "one joined the ad server"
        ).format(**cost)
        if local := cost["local_epsilon"]:
            yield f"and ε = {local:.6g} more, by sums without noise over labels that were randomised"
