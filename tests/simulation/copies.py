"""Old copies of a helper's database, which somebody puts back: the ledger in them is behind its anchor."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select

from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.config import Config
from maskedlark.ledger.rows import RECEIPTS
from maskedlark.storage.engine import open_database


class Copy(NamedTuple):
    """A copy of the folder that a database is in. The helper is down while anything is done with it."""

    database: Path
    kept: Path

    def keep(self) -> None:
        """Copy what is there now, and forget the copy of before."""
        shutil.rmtree(self.kept, ignore_errors=True)
        shutil.copytree(self.database, self.kept)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The copy is in the place of the database; the right one is back at the end."""
        aside = self.kept.with_suffix(".aside")
        self.database.rename(aside)
        shutil.copytree(self.kept, self.database)
        try:
            yield
        finally:
            shutil.rmtree(self.database)
            aside.rename(self.database)


def is_behind(config: Config) -> bool:
    """Whether a helper's anchor knows of receipts that its database has not."""
    anchor, database = FileAnchor(config.anchor_folder), open_database(config.database_url)
    query = select(RECEIPTS.c.origin, func.max(RECEIPTS.c.number)).group_by(RECEIPTS.c.origin)
    try:
        with database.read() as connection:
            ends = {row[0]: row[1] for row in connection.execute(query)}
    finally:
        database.close()
    marks = {each: anchor.read(each) for each in anchor.origins()}
    return any(mark is not None and mark.number > ends.get(each, 0) for each, mark in marks.items())
