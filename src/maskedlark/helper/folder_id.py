"""A folder and a database server's database that belong together. Run by a helper at its start.

All front ends of a helper share both. One with a folder of its own would see neither the locks nor the kept
answers of the others, and would remove what they write to storage. So folder and database hold the same id.
"""

import os
from pathlib import Path

from sqlalchemy import Column, MetaData, String, Table, delete, insert, select

from maskedlark.helper.errors import OtherFolder
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.web import files

NAME = "folder-id"
SCHEMA_VERSION = 1
TABLES = MetaData()
FOLDER = Table("helper_folder", TABLES, Column("id", String(32), primary_key=True))


def check_folder(folder: Path, database: Database) -> None:
    """Refuse a folder that is not the database's. The first folder that comes is."""
    prepare(database, "folder", SCHEMA_VERSION, TABLES)
    path = folder / NAME
    with database.write() as connection:
        database.alone(connection, "folder")
        known, own = connection.scalar(select(FOLDER.c.id)), _read(path)
        if known is None:
            connection.execute(insert(FOLDER).values(id=own or _make(path)))
        elif known != own:
            raise OtherFolder(
                f"the database belongs to another folder than {folder}, and all front ends of a helper share "
                f"one: name that one. If it is lost, and this is in its place, write {known} into {path}"
            )


def adopt_folder(folder: Path, database: Database) -> None:
    """Let this folder be the database's from now on. Run by a recovery."""
    prepare(database, "folder", SCHEMA_VERSION, TABLES)
    path = folder / NAME
    with database.write() as connection:
        connection.execute(delete(FOLDER))
        connection.execute(insert(FOLDER).values(id=_read(path) or _make(path)))


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _make(path: Path) -> str:
    made = os.urandom(16).hex()
    files.write(path, made.encode())
    return made
