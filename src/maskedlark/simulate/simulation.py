"""The whole workflow on a user's own table: real services, reports over HTTP, two frozen datasets.

    with simulate.start(table, keys=["campaign"], values={"bought": (0, 1)}, label="bought") as simulation:
        with simulation.client() as client:
            print(client.query(["bought"], by="campaign"))

Run by anyone who wants to try measuring and training on data like theirs. Nothing here is private from that
user, who has the whole table and all keys.
"""

import atexit
import json
import operator
import os
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from maskedlark.adserver.dataset_store import Dataset
from maskedlark.browser import population
from maskedlark.core.purpose import Purpose
from maskedlark.features.encoder import Encoder
from maskedlark.features.kind_text import typed_kind
from maskedlark.features.kinds import Kind
from maskedlark.features.table import Table
from maskedlark.features.table_file import read_table
from maskedlark.helper.errors import FolderInUse
from maskedlark.helper.folder_lock import only_process
from maskedlark.ledger.wording import both
from maskedlark.parameters.document import Document
from maskedlark.parameters.policy import against_coalition
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.simulate import drafts
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.simulate.errors import BadSimulation, OtherSimulation
from maskedlark.simulate.forked import ForkServer
from maskedlark.simulate.reporting import Reporting
from maskedlark.simulate.users import Bounds, ColumnRoles, Users, read_users
from maskedlark.training.client import Client
from maskedlark.web import files

TAG = "ConversionModel"
EPSILON, FAKE_RATE = 8.0, 0.2
_SIMULATION = "simulation.json"
Say = Callable[[str], None]


@dataclass(eq=False)
class Simulation(AbstractContextManager["Simulation"]):
    """Running services that hold the users' reports. Stopped at the end of a `with`, or by `stop`."""

    cluster: LocalCluster
    encoder: Encoder | None
    frozen: Mapping[Purpose, Dataset]
    _until: ExitStack

    @property
    def folder(self) -> Path:
        """The folder of all files."""
        return self.cluster.folder

    @property
    def config(self) -> Path:
        """The ad server's own `adserver.toml`."""
        return self.cluster.config

    @property
    def document(self) -> Document:
        """The ad server's public document."""
        return self.cluster.document

    @property
    def datasets(self) -> dict[Purpose, str]:
        """The frozen datasets by name: "measured" to aggregate, "trained" to train."""
        return {purpose: each.name for purpose, each in self.frozen.items()}

    def client(self) -> Client:
        """The ad server's client: to query, to train, to evaluate."""
        return self.cluster.client()

    def stop(self) -> None:
        """Stop every service. A given folder stays; a temporary one is deleted."""
        atexit.unregister(self.stop)
        self._until.close()

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    table: Table | str | Path,
    folder: str | Path | None = None,
    *,
    keys: Sequence[str] = (),
    values: Mapping[str, Bounds] | None = None,
    label: str | None = None,
    tag: str = TAG,
    encoder: Encoder | None = None,
    features: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    kinds: Mapping[str, Kind | str] | None = None,
    drop_unlabelled: bool = False,
    helpers: int = 2,
    k: int | None = None,
    epsilon: float = EPSILON,
    delta: float | None = None,
    fake_rate: float = FAKE_RATE,
    psi: float | None = None,
    centre: bool = False,
    processes: int = 1,
    progress: bool | None = None,
    say: Say | None = None,
    rng: Randomness | None = None,
) -> Simulation:
    """Start a parameter service, helpers and an ad server; each row's browser reports; freeze two datasets.

    `table` is columns by name, a pandas table, rows of dicts, or the path of a CSV or Parquet file. `values`
    are integers with their public bounds; `label` is 0 or 1. Features are all other columns, keys too, unless
    named or left out; dates and what names each row are left out unless named. `kinds` says how some become
    bytes: `{"region": OneHot()}`, or `"hashed:8"` as on the command line. By default k is 100, and less below
    1,000 rows. `epsilon` and `delta` are the lifetime budget of a source. `psi` bounds a record's gradient;
    by default it follows from the length of the rows, without labels. `centre` drafts a model whose first
    layer centres them: less noise relative to them, and more to send. With a folder used before it resumes,
    and nothing is reported twice. What became a feature, and how, and what was left out, is printed on
    standard error, or given to `say` line by line. In a script, more `processes` than one need Python's usual
    `if __name__ == "__main__":`.
    """
    if helpers < 2:
        raise BadSimulation(f"helpers={helpers}: a secret is shared among at least 2 helpers")
    wanted = ColumnRoles(
        tuple([keys] if isinstance(keys, str) else keys),
        _bounded({} if values is None else values),
        label,
        None if features is None else tuple(features),
        tuple([leave_out] if isinstance(leave_out, str) else leave_out),
        {name: typed_kind(kind) if isinstance(kind, str) else kind for name, kind in (kinds or {}).items()},
        drop_unlabelled,
    )
    shown = sys.stderr.isatty() if progress is None else progress
    with ExitStack() as made_here, ExitStack() as stack:
        # What is made until this returns, and by services as long as they run, is for its owner alone.
        made_here.callback(os.umask, os.umask(0o77))
        server = stack.enter_context(ForkServer())  # First: it imports while the table is read.
        if processes > 1:
            population.preload()
        people = read_users(read_table(table) if isinstance(table, str | Path) else table, wanted, encoder)
        del table  # It may be much larger than what is left of it.
        said = drafts.chosen(people.size, k, epsilon, fake_rate, delta, psi, centre)
        place = _place(folder, stack)
        text = drafts.settings(people, wanted.values, label, tag, said)
        now = {"users": people.digest, "helpers": helpers, "settings": text}
        _same(place, now)
        _tell(people, say)
        cluster = local_cluster(place, text, rng or SystemRandomness(), helpers, server=server)
        running = stack.enter_context(cluster)
        (say or _print)(_declared(running.document))
        # Only now: after refused settings, the folder can be used with corrected ones.
        files.write(place / _SIMULATION, json.dumps(now).encode())
        with running.client() as client:
            frozen = Reporting(running, people, tag, processes, shown).run(client)
        if people.encoder is not None:
            records = frozen[Purpose.TRAIN].records or 0
            drafts.write_files(place, running.document, tag, records, people, centre)
        made = Simulation(running, people.encoder, frozen, stack.pop_all())
    atexit.register(made.stop)
    return made


def _bounded(values: Mapping[str, Bounds]) -> dict[str, Bounds]:
    if not isinstance(values, Mapping):
        raise BadSimulation(
            f"values={values!r}: give each with its bounds, which all may know, as in {{'bought': (0, 1)}}"
        )
    return {name: _whole(name, bounds) for name, bounds in values.items()}


def _whole(name: str, bounds: Bounds) -> Bounds:
    """Bounds as Python integers, from any library's numbers."""
    try:
        low, high = map(operator.index, bounds)
    except (TypeError, ValueError):
        raise BadSimulation(f"value {name!r}: its bounds are two whole numbers, as in (0, 200)") from None
    return low, high


def _tell(people: Users, say: Say | None) -> None:
    """Pass to `say` how the table was read; without it, warn about leaks and print the rest."""
    tell = say or _print
    for note in people.notes:
        tell(note)
    for leak in people.leaks:
        if say is None:
            warnings.warn(leak, stacklevel=3)  # Names the line that called `start`.
        else:
            say(leak)
    for line in feature_table(people):
        tell(line)


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def _declared(document: Document) -> str:
    """What was drafted, with both ε."""
    budget, most = document.budget, document.training
    training = "" if most is None else f", training ε = {both(most.adserver.epsilon, most.coalition.epsilon)}"
    whole = both(budget.epsilon, against_coalition(document).epsilon)
    return (
        f"declared: k = {document.k}; a source may cost ε = {whole}, δ = {budget.delta:g}{training}; "
        f"{document.fake_rate:.0%} fakes"
    )


def feature_table(people: Users) -> Iterator[str]:
    """What became a feature, and how; what did not, and why."""
    if people.encoder is None:
        return
    rows = [
        (each.name, each.how + "; missing" * each.indicator, str(len(each.names())))
        for each in people.encoder.columns
    ]
    rows += [(name, f"no feature: {why}", "") for name, why in people.excluded.items()]
    rows = [("feature", "how", "bytes"), *rows, ("all", "", str(len(people.encoder)))]
    widths = [max(len(row[place]) for row in rows) for place in range(2)]
    for name, how, size in rows:
        yield f"  {name:<{widths[0]}}  {how:<{widths[1]}}  {size:>5}".rstrip()
    if people.excluded:
        yield "A column that is no feature becomes one if it is named, or gets a kind."


def _place(folder: str | Path | None, stack: ExitStack) -> Path:
    """The folder, locked: no other process runs a simulation in it."""
    if folder is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="maskedlark-")))
    place = Path(folder).absolute()
    try:
        stack.enter_context(only_process(place))
    except FolderInUse as error:
        raise OtherSimulation(f"this simulation runs already: {error}") from None
    return place


def _same(place: Path, now: Mapping[str, object]) -> None:
    """Refuse a folder of another simulation, whose reports are already frozen."""
    path = place / _SIMULATION
    if not path.exists():
        return
    try:
        before = dict(json.loads(path.read_text()))
    except (TypeError, ValueError):
        raise OtherSimulation(f"{path} is damaged: give another folder") from None
    if before != now:
        what = _WHAT[next(name for name in now if before.get(name) != now[name])]
        if what == _WHAT["settings"]:
            what += f" ({', '.join(_differing(str(before.get('settings')), str(now['settings'])))})"
        raise OtherSimulation(
            f"{place} holds another simulation: its {what} differ. Start it as it was, or give another folder"
        )


def _differing(before: str, now: str) -> list[str]:
    """The names of settings that are not the same in two TOMLs."""
    try:
        was, is_ = tomllib.loads(before), tomllib.loads(now)
    except tomllib.TOMLDecodeError:
        return ["all"]
    return [name for name in {**was, **is_} if was.get(name) != is_.get(name)]


_WHAT = {"users": "table or columns", "helpers": "number of helpers", "settings": "settings"}
