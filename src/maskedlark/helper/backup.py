"""Backing up a running helper, and restoring it. Run by its operator.

A backup holds the manifest, which lists all files with their digests; the database; the columns of frozen
datasets; the parameter documents seen; and the keys if requested. The database is copied before the columns.
Columns are written before the row that names them, never change, and are deleted only once that row states
their expiry. So every frozen dataset of the copy finds its columns. Chunks of open datasets are left out: a
recovery aborts those.

The anchor is never in it. It exists to notice an old ledger; restored with the ledger, it would agree with
it. The copied ledger itself is marked as a copy (`ledger.rows`).
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError
from sqlalchemy import select

from maskedlark.clock import Clock
from maskedlark.helper import keyring
from maskedlark.helper.columns import Contents
from maskedlark.helper.config import Config
from maskedlark.helper.errors import BadBackup, DamagedDataset
from maskedlark.helper.folder_lock import only_process
from maskedlark.helper.tables import DATASETS, FROZEN, DatasetRow
from maskedlark.ledger import rows
from maskedlark.parameters.settings import Name, Seconds
from maskedlark.storage import backup as storage
from maskedlark.storage.engine import Database, file_of, open_database
from maskedlark.storage.schema import prepare
from maskedlark.web import files
from maskedlark.wire.message import Hex32, Settings

DATABASE = "database/helper.sqlite"
MANIFEST = "manifest.json"
_KEYS = f"keys/{keyring.NAME}"
_SEEN = "seen"
"""The number of documents of a cached chain. Copied before them, so that none is missed."""


class Copied(Settings):
    """A copied file's size and digest."""

    size: Annotated[int, Field(ge=0)]
    sha256: Hex32


class Manifest(Settings):
    """Whose backup it is, its time, and its files by path."""

    format: Literal[1] = 1
    helper: Name
    taken: Seconds
    database: Literal["sqlite", "server"]
    """A server's database is not in it: its own tools back it up."""
    files: Mapping[Annotated[str, StringConstraints(pattern=r"^[!-.0-~]+(/[!-.0-~]+)*$")], Copied]


def back_up(
    config: Config,
    target: Path,
    clock: Clock,
    with_keys: bool = False,
    dumped: bool = False,
    earlier: Path | None = None,
) -> Manifest:
    """Copy a helper, which may be running, into a new folder, completely or not at all.

    `dumped` states that a server's database was dumped before; `earlier` is a backup on the same disk, whose
    columns are linked where they are the same.
    """
    is_server = file_of(config.database_url) is None
    if is_server and not dumped:
        raise BadBackup(
            "the database is a server's: first make its copy with pg_dump, then run this with --dumped, in "
            "this order, and put both back together"
        )
    listed = read_manifest(earlier, config.name).files if earlier else {}
    before = {(path, file): earlier / path for path, file in listed.items()} if earlier else {}
    with _whole(target) as folder, closing(open_database(config.database_url, make=False)) as database:
        copied: dict[str, Copied] = {}
        if is_server:
            frozen = _frozen(database)
        else:
            frozen = _copy_database(database, folder / DATABASE, clock.now())
            copied[DATABASE] = _copied(folder / DATABASE)
        # In storage of its own, columns are backed up by that storage.
        for each in frozen if config.compute.storage is None else ():
            copied |= _copy_columns(config, database, each, folder, before)
        copied |= _copy_parameters(config.parameters_folder, folder)
        if with_keys:
            keyring.stamp(config.keys_folder)
            copied[_KEYS] = _copy(config.keys_folder / keyring.NAME, folder / _KEYS)
        kind: Literal["sqlite", "server"] = "server" if is_server else "sqlite"
        made = Manifest(helper=config.name, taken=clock.now(), database=kind, files=copied)
        files.write(folder / MANIFEST, made.model_dump_json(indent=1).encode())
    return made


def put_back(config: Config, source: Path) -> Manifest:
    """Restore a backup's files, each checked; refuses where there is a database.

    The database comes last: a partly restored helper does not start.
    """
    manifest = read_manifest(source, config.name)
    with only_process(config.folder):
        database = file_of(config.database_url)
        if (manifest.database == "sqlite") != (database is not None):
            raise BadBackup("the backup has another kind of database than helper.toml names")
        if database is not None and database.exists():
            raise BadBackup(f"{database} is there: move it away first, nothing is written over it")
        for name, wanted in manifest.files.items():
            kind, _, rest = name.partition("/")
            if kind not in ("columns", "parameters", "keys", "database") or not rest:
                raise BadBackup(f"the backup has a file that no helper has: {name}")
            place = config.folder / name
            # Keys that are there were made since then: they are the published ones.
            if name != DATABASE and not (name == _KEYS and place.exists()):
                _replace(source / name, place, wanted)
        if database is not None:
            _replace(source / DATABASE, database, manifest.files[DATABASE])
    return manifest


def _copy_columns(
    config: Config,
    database: Database,
    row: DatasetRow,
    folder: Path,
    before: Mapping[tuple[str, Copied], Path],
) -> dict[str, Copied]:
    """One frozen dataset's files, linked where `before` has them. Empty if it expired meanwhile."""
    place, copied = f"columns/{row.number}/{row.folder}", {}
    try:
        for name, stored in Contents.model_validate_json(row.contents).all_files.items():
            path, wanted = f"{place}/{name}", Copied(size=stored.size, sha256=stored.digest)
            if not _link(before.get((path, wanted)), folder / path):
                _copy(config.folder / path, folder / path, wanted)
            copied[path] = wanted
    except (FileNotFoundError, BadBackup):
        with database.read() as connection:
            state = connection.scalar(select(DATASETS.c.state).where(DATASETS.c.number == row.number))
        if state == FROZEN:
            raise DamagedDataset(f"{config.folder / place} lacks a file, or one was changed") from None
        shutil.rmtree(folder / place, ignore_errors=True)
        return {}
    return copied


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A folder that gets its name once everything in it is durable."""
    if target.exists():
        raise BadBackup(f"{target} is there already: name a new folder")
    with ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))  # 0700
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                files.sync(path)
        folder.rename(target)
        undo.pop_all()
    files.sync(target.parent)


def _copy_database(database: Database, path: Path, now: int) -> Sequence[DatasetRow]:
    """Copy the database and mark the copy as one. Returns the frozen datasets in it."""
    path.parent.mkdir(0o700)
    storage.copy(database, path)
    with closing(open_database(f"sqlite:///{path}", make=False)) as copy:
        prepare(copy, "ledger", rows.SCHEMA_VERSION, rows.TABLES)
        with copy.write() as connection:
            rows.mark_copy(connection, now)
        frozen = _frozen(copy)
    storage.finish(path)
    return frozen


def _frozen(database: Database) -> Sequence[DatasetRow]:
    return database.rows(select(DATASETS).where(DATASETS.c.state == FROZEN))


def _copy_parameters(source: Path, folder: Path) -> dict[str, Copied]:
    """The cached documents and keys of others. Hidden files are locks or are being written."""
    seen = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")]
    copied = {}
    for path in sorted(seen, key=lambda path: (path.name != _SEEN, path)):
        name = f"parameters/{path.relative_to(source).as_posix()}"
        copied[name] = _copy(path, folder / name)
    return copied


def _replace(source: Path, place: Path, wanted: Copied) -> None:
    """Copy one file, checked; it gets its name once it is whole."""
    beside = place.with_name(f".{place.name}-restoring")
    _copy(source, beside, wanted)
    beside.replace(place)
    files.sync(place.parent)


def read_manifest(folder: Path, helper: str) -> Manifest:
    """The manifest of this helper's backup. The files that it lists are not checked yet."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise BadBackup(f"{folder} is no backup: it has no {MANIFEST}") from None
    except ValidationError:
        raise BadBackup(f"{folder / MANIFEST} was damaged or changed: take another backup") from None
    if manifest.helper != helper:
        raise BadBackup(f"{folder} is a backup of {manifest.helper}, not of {helper}")
    if any(".." in PurePosixPath(name).parts for name in manifest.files):
        raise BadBackup(f"{folder / MANIFEST} names a file outside of it: take another backup")
    return manifest


def _link(earlier: Path | None, target: Path) -> bool:
    """Link a file of an earlier backup, if there is one and linking works."""
    _make_folder(target.parent)
    with suppress(OSError):
        if earlier is not None:
            os.link(earlier, target)
            return True
    return False


def _copy(source: Path, target: Path, wanted: Copied | None = None) -> Copied:
    """Copy a file privately and durably, except for its name. Refuses content other than `wanted`."""
    _make_folder(target.parent)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with ExitStack() as undo:
        undo.callback(target.unlink)
        with os.fdopen(handle, "wb") as writing, source.open("rb") as reading:
            shutil.copyfileobj(reading, writing)
            writing.flush()
            os.fsync(writing.fileno())
        made = _copied(target)
        if wanted not in (None, made):
            raise BadBackup(f"{source} is not what it was: it was damaged or changed")
        undo.pop_all()
    return made


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, all private."""
    for each in reversed((folder, *folder.parents)):
        each.mkdir(0o700, exist_ok=True)


def _copied(path: Path) -> Copied:
    """The record of a file already in its place."""
    with path.open("rb") as file:
        return Copied(size=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())
