"""A backup of a running helper, and putting it back. Run by its operator.

In it: the database, the columns of sealed datasets, the parameter documents that were seen; the keys if they
are asked for. The database is copied first and columns after it: they are written before the row that names
them, never change, and go only when that row says that their time is over. So every sealed dataset of the
copy finds its columns. Chunks of open datasets are not in it: a recovery aborts those.

Not in it, ever: the anchor. It says how far receipts got, and is there to notice an old ledger; put back with
the ledger it would agree with it. And the copied ledger says itself that it is one (`privacy.recovered`).
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, select

from maskedlark.clock import Clock
from maskedlark.helper import keyring, manifest
from maskedlark.helper.alone import alone
from maskedlark.helper.columns import Contents
from maskedlark.helper.config import Config
from maskedlark.helper.errors import BadBackup, DamagedDataset
from maskedlark.helper.manifest import Copied, Manifest
from maskedlark.helper.tables import DATASETS, SEALED
from maskedlark.ledger import recovered
from maskedlark.storage import backup as storage
from maskedlark.storage.engine import Database, file_of, open_database
from maskedlark.storage.schema import prepare
from maskedlark.web import files

DATABASE = "database/helper.sqlite"
_KEYS = f"keys/{keyring.NAME}"
_SEEN = "seen"
"""Of a cached chain: how many documents there are. Copied before them, so that none is missed."""


class _Columns(NamedTuple):
    """A sealed dataset's folder, by the row that names it."""

    number: int
    folder: str
    contents: Contents

    @property
    def path(self) -> str:
        return f"columns/{self.number}/{self.folder}"


def back_up(
    config: Config,
    target: Path,
    clock: Clock,
    with_keys: bool = False,
    dumped: bool = False,
    earlier: Path | None = None,
) -> Manifest:
    """Copy a helper, which may run, into a new folder. It is there as a whole, or not at all.

    `dumped` says that a server's database was dumped before; `earlier` is a backup on the same disk, whose
    columns are linked where they are the same.
    """
    is_server = file_of(config.database_url) is None
    if is_server and not dumped:
        raise BadBackup(
            "the database is a server's: first make its copy with pg_dump, then run this with --dumped, in "
            "this order, and put both back together"
        )
    links = manifest.read(earlier, config.name) if earlier else None
    with _whole(target) as folder:
        copied: dict[str, Copied] = {}
        database = open_database(config.database_url, make=False)
        try:
            if is_server:
                sealed = _sealed(database)
            else:
                sealed = _copy_database(database, folder / DATABASE, clock.now())
                copied[DATABASE] = manifest.copied(folder / DATABASE)
            for each in sealed:
                copied |= _Copying(config, database, folder, earlier, links).columns(each)
        finally:
            database.close()
        copied |= _copy_parameters(config.parameters_folder, folder)
        if with_keys:
            keyring.stamp(config.keys_folder)
            copied[_KEYS] = manifest.copy(config.keys_folder / keyring.NAME, folder / _KEYS)
        made = Manifest(
            helper=config.name,
            taken=clock.now(),
            database="server" if is_server else "sqlite",
            files=copied,
        )
        files.write(folder / manifest.NAME, made.model_dump_json(indent=1).encode())
    return made


def put_back(config: Config, source: Path) -> Manifest:
    """Put a backup's files where the helper has them, each checked. Refuses where there is a database.

    The database comes last: a helper that was put back in part does not start.
    """
    found = manifest.read(source, config.name)
    with alone(config.folder):
        database = file_of(config.database_url)
        if (found.database == "sqlite") != (database is not None):
            raise BadBackup("the backup has another kind of database than helper.toml names")
        if database is not None and database.exists():
            raise BadBackup(f"{database} is there: move it away first, nothing is written over it")
        for name, wanted in found.files.items():
            place = _place(config, name)
            if place is not None and name != DATABASE:
                _replace(source / name, place, wanted)
        if database is not None:
            _replace(source / DATABASE, database, found.files[DATABASE])
    return found


class _Copying(NamedTuple):
    """Copying columns: from where, to where, and what is there already."""

    config: Config
    database: Database
    folder: Path
    earlier: Path | None
    links: Manifest | None

    def columns(self, sealed: _Columns) -> dict[str, Copied]:
        """The files of one dataset; none if its time was over meanwhile."""
        source, copied = self.config.columns_folder / str(sealed.number) / sealed.folder, {}
        try:
            for name, stored in sealed.contents.files.items():
                path = f"{sealed.path}/{name}"
                wanted = Copied(size=stored.size, sha256=stored.digest)
                if not self._link(path, wanted):
                    manifest.copy(source / name, self.folder / path, wanted)
                copied[path] = wanted
        except (FileNotFoundError, BadBackup):
            with self.database.read() as connection:
                state = select(DATASETS.c.state).where(DATASETS.c.number == sealed.number)
                if connection.scalar(state) == SEALED:
                    raise DamagedDataset(f"{source} lacks a file, or one was changed") from None
            shutil.rmtree(self.folder / sealed.path, ignore_errors=True)
            return {}
        return copied

    def _link(self, path: str, wanted: Copied) -> bool:
        """Columns never change: one that is in the backup before is as good."""
        if self.earlier is None or self.links is None or self.links.files.get(path) != wanted:
            return False
        manifest.make_folder((self.folder / path).parent)
        try:
            os.link(self.earlier / path, self.folder / path)
        except OSError:
            return False
        return True


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A folder that has its name when everything in it is durable."""
    if target.exists():
        raise BadBackup(f"{target} is there already: name a new folder")
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))  # 0700
    try:
        yield folder
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                files.sync(path)
        folder.rename(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    files.sync(target.parent)


def _copy_database(database: Database, path: Path, now: int) -> list[_Columns]:
    """The copy says of itself that it is one. Returns the sealed datasets in it."""
    path.parent.mkdir(0o700)
    storage.copy(database, path)
    copy = open_database(f"sqlite:///{path}", make=False)
    try:
        prepare(copy, "recovered ledger", recovered.SCHEMA_VERSION, recovered.TABLES)
        with copy.write() as connection:
            recovered.mark_copy(connection, now)
        sealed = _sealed(copy)
    finally:
        copy.close()
    storage.finish(path)
    return sealed


def _sealed(database: Database) -> list[_Columns]:
    with database.read() as connection:
        return [*_rows(connection)]


def _rows(connection: Connection) -> Iterator[_Columns]:
    wanted = DATASETS.c.number, DATASETS.c.folder, DATASETS.c.contents
    for row in connection.execute(select(*wanted).where(DATASETS.c.state == SEALED)):
        yield _Columns(row.number, row.folder, Contents.model_validate_json(row.contents))


def _copy_parameters(source: Path, folder: Path) -> dict[str, Copied]:
    """What was seen of documents and keys of others. Hidden files are locks, and what is being written."""
    found = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")]
    copied = {}
    for path in sorted(found, key=lambda path: (path.name != _SEEN, path)):
        name = f"parameters/{path.relative_to(source).as_posix()}"
        copied[name] = manifest.copy(path, folder / name)
    return copied


def _place(config: Config, name: str) -> Path | None:
    """Where a backup's file belongs; nowhere if what is there is newer."""
    room, _, rest = name.partition("/")
    rooms = {
        "columns": config.columns_folder,
        "parameters": config.parameters_folder,
        "keys": config.keys_folder,
        "database": config.folder,
    }
    if room not in rooms or not rest:
        raise BadBackup(f"the backup has a file that no helper has: {name}")
    place = rooms[room] / rest
    # Keys that were made since are the ones that are published.
    return None if name == _KEYS and place.exists() else place


def _replace(source: Path, place: Path, wanted: Copied) -> None:
    """One file, checked, under its name when it is whole."""
    beside = place.with_name(f".{place.name}-restoring")
    try:
        manifest.copy(source, beside, wanted)
        beside.replace(place)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    files.sync(place.parent)
