"""Opens a helper's database, and refuses an empty one in place of a lost one. Run by a helper and a recovery.

With the anchor lost too, an empty ledger would charge budgets anew and pin other check keys. So the folder
says that the helper has run: a file says so once the ledger's tables are there, and a dataset's folder does.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from sqlalchemy import inspect

from maskedlark.helper.config import Config
from maskedlark.helper.tables import DATASETS
from maskedlark.ledger import rows
from maskedlark.ledger.errors import LedgerBehind
from maskedlark.storage.engine import Database, file_of, open_database
from maskedlark.storage.schema import prepare
from maskedlark.web import files

NAME = "has-run"


@contextmanager
def open_ledger_database(config: Config, recovers: bool = False, wait: bool = False) -> Iterator[Database]:
    """The database of a helper. `recovers`: an empty one may be in place of a lost one, as a copy of it."""
    file, has_run = file_of(config.database_url), _has_run(config)
    if file is not None:
        if has_run and not (recovers or file.exists()):
            raise _lost()
        # Private, since seeds of noise are in it. An existing file keeps its mode.
        file.parent.mkdir(0o700, parents=True, exist_ok=True)
        file.touch(0o600)  # SQLite gives its other files the same.
    with closing(open_database(config.database_url, wait=wait)) as database:
        with database.read() as connection:
            is_new = not inspect(connection).has_table(DATASETS.name)  # Made after those of the ledger.
        if has_run and is_new:
            if not recovers:
                raise _lost()
            prepare(database, "ledger", rows.SCHEMA_VERSION, rows.TABLES)
            with database.write() as connection:
                if not rows.is_copy(connection):
                    rows.mark_copy(connection, 0)
        yield database


def mark_run(config: Config) -> None:
    """Note that the helper has run. Called once its tables are there."""
    if not (path := config.folder / NAME).exists():
        files.write(path, b"")


def _has_run(config: Config) -> bool:
    folders = config.columns_folder.glob("*")
    return (config.folder / NAME).exists() or any(each.name.isdigit() for each in folders)


def _lost() -> LedgerBehind:
    return LedgerBehind(
        "this helper has run before, and its database is missing or empty; a budget is never reset. Put the "
        "database back, or run `maskedlark helper restore` with a backup, then `maskedlark helper recover`; "
        "with neither database nor anchor, `recover --anchor-lost` closes all accounts"
    )
