"""Backups of a helper that runs: whole or not at all, consistent, and checked when they are put back."""

import json
import shutil
import stat
import threading

import pytest

from maskedlark.helper import backup
from maskedlark.helper.columns import Contents
from maskedlark.helper.errors import BadBackup, DamagedDataset, FolderInUse
from maskedlark.helper.keyring import Keyring
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import BadKeyFile
from tests.unit.helper.lost import LITTLE_NOISE, Lost, ask, freeze, send
from tests.unit.helper.world import DAY_S, NAME, running, settings, world
from tests.unit.parameters.cases import HELPER_KEYS


@pytest.fixture
def running_one(tmp_path):
    with world(tmp_path, anchor=str(tmp_path / "anchor")) as at:
        at.publish(**LITTLE_NOISE)
        yield at


def filled(at, name: str) -> str:
    return freeze(at, name, send(at, at.document, name, at.reports(at.document)))


def config(at):
    return settings(at.folder, anchor=str(at.folder / "anchor"))


def take(at, name: str = "copy", **options):
    target = at.folder / name
    backup.back_up(config(at), target, at.clock, **options)
    return target


def names(folder) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_is_in_a_backup_and_what_is_not(running_one):
    digest = filled(running_one, "monday")
    send(running_one, running_one.document, "open", running_one.reports(running_one.document))
    ask(running_one, digest, number=1)
    found = take(running_one)
    rooms = {name.split("/")[0] for name in names(found)}
    assert rooms == {"database", "columns", "parameters", "manifest.json"}
    assert not any("anchor" in name or "key" in name.split("/")[0] for name in names(found))
    assert {name for name in names(found) if name.startswith("database")} == {backup.DATABASE}
    assert {name.split("/")[1] for name in names(found) if name.startswith("columns")} == {"1"}
    listed = json.loads((found / backup.MANIFEST).read_text())["files"]
    assert {*listed, backup.MANIFEST} == names(found)
    for path in (found, *found.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_keys_are_in_it_only_if_they_are_asked_for(running_one):
    found = take(running_one, with_keys=True)
    assert stat.S_IMODE((found / "keys" / "keys.json").stat().st_mode) == 0o600
    (config(running_one).keys_folder / "keys.json").chmod(0o644)
    with pytest.raises(BadKeyFile, match="open to others"):
        take(running_one, "again", with_keys=True)
    assert not (running_one.folder / "again").exists()


def test_a_backup_while_datasets_are_frozen_and_questions_asked(running_one):
    """Every copy is of one state: each frozen dataset in it has its columns, and each line its receipt."""
    first, stop = filled(running_one, "first"), threading.Event()
    done: list[int] = []

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            filled(running_one, f"dataset-{number}")
            ask(running_one, first, number=number, noise=100.0)
            done.append(number)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        taken = [take(running_one, f"copy-{count}") for count in range(4)]
    finally:
        stop.set()
        worker.join()
    assert done
    for folder in taken:
        listed = backup.read_manifest(folder, NAME)
        database = open_database(f"sqlite:///{folder / backup.DATABASE}")
        frozen = backup._frozen(database)
        database.close()
        for each in frozen:
            for name, stored in Contents.model_validate_json(each.contents).files.items():
                path = f"columns/{each.number}/{each.folder}/{name}"
                assert listed.files[path].sha256 == stored.digest


def test_nothing_is_left_of_a_backup_that_fails(running_one):
    filled(running_one, "monday")
    columns = config(running_one).columns_folder / "1"
    next(columns.rglob("0.shares")).write_bytes(b"damaged")
    with pytest.raises(DamagedDataset):
        take(running_one)
    assert not [path for path in running_one.folder.iterdir() if "copy" in path.name]
    (running_one.folder / "copy").mkdir()
    with pytest.raises(BadBackup, match="there already"):
        take(running_one)


def test_a_dataset_whose_time_is_over_while_it_is_copied_is_left_out(running_one, monkeypatch):
    filled(running_one, "monday")
    copy_database = backup._copy_database

    def then_forget(*arguments):
        found = copy_database(*arguments)
        running_one.clock.seconds += 29 * DAY_S
        running_one.service.forget()
        running_one.clock.seconds += 10 * DAY_S
        running_one.service.forget()
        return found

    monkeypatch.setattr(backup, "_copy_database", then_forget)
    assert not [name for name in names(take(running_one)) if name.startswith("columns")]


def test_columns_of_the_backup_before_are_linked(running_one):
    filled(running_one, "monday")
    first = take(running_one, "first")
    filled(running_one, "tuesday")
    second = take(running_one, "second", earlier=first)
    for name in names(second):
        links = (second / name).stat().st_nlink
        assert links == (2 if name in names(first) and name.startswith("columns") else 1), name
    # Either may go.
    shutil.rmtree(first)
    shutil.rmtree(config(running_one).folder / "columns")
    (config(running_one).folder / "database" / "helper.sqlite").unlink()
    with pytest.raises(FolderInUse):
        backup.put_back(config(running_one), second)


@pytest.mark.parametrize("room", ["database", "columns", "parameters"])
def test_a_damaged_backup_is_not_put_back(tmp_path, room):
    lost = Lost(tmp_path)
    victim = next(path for path in (tmp_path / "backup" / room).rglob("*") if path.is_file())
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    with pytest.raises(BadBackup, match="damaged or changed"):
        lost.put_back()
    # It does not start on what is there: the database comes last.
    assert not (lost.config.folder / "database" / "helper.sqlite").exists()
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    backup.put_back(lost.config, tmp_path / "backup")
    lost.recover()
    with running(tmp_path, lost.config, lost.clock) as at:
        assert ask(at, lost.monday, number=1) == lost.first


def test_what_is_no_backup_of_this_helper_is_refused(tmp_path):
    lost = Lost(tmp_path)
    with pytest.raises(BadBackup, match="is there: move it away"):
        backup.put_back(lost.config, tmp_path / "backup")
    with pytest.raises(BadBackup, match="is no backup"):
        backup.put_back(lost.config, tmp_path)
    other = lost.config.model_copy(update={"name": "helper-9"})
    with pytest.raises(BadBackup, match="of helper-0, not of helper-9"):
        backup.put_back(other, tmp_path / "backup")
    listed = json.loads((tmp_path / "backup" / backup.MANIFEST).read_text())
    listed["files"]["columns/../../evil"] = {"size": 0, "sha256": "00" * 32}
    (tmp_path / "backup" / backup.MANIFEST).write_text(json.dumps(listed))
    with pytest.raises(BadBackup, match="outside of it"):
        backup.put_back(lost.config, tmp_path / "backup")


def test_newer_keys_are_not_replaced(tmp_path):
    with world(tmp_path, anchor=str(tmp_path / "anchor")) as at:
        copy, mine = take(at, with_keys=True), config(at)
    keyring, database = Keyring(mine.keys_folder, NAME), mine.folder / "database" / "helper.sqlite"
    backed_up = keyring.configuration
    keyring.rotate(HELPER_KEYS[0], mine.address, at.clock.now(), SystemRandomness())
    newer = keyring.configuration
    database.unlink()
    backup.put_back(mine, copy)
    assert keyring.configuration == newer != backed_up
    database.unlink()
    (mine.keys_folder / "keys.json").unlink()
    backup.put_back(mine, copy)
    assert keyring.configuration == backed_up


def test_a_servers_database_is_dumped_by_its_own_tools(tmp_path, postgresql_url):
    with world(tmp_path, database=postgresql_url) as at:
        at.publish(**LITTLE_NOISE)
        digest = filled(at, "monday")
        mine = settings(tmp_path, database=postgresql_url)
        with pytest.raises(BadBackup, match="first make its copy with pg_dump"):
            backup.back_up(mine, tmp_path / "copy", at.clock)
        backup.back_up(mine, tmp_path / "copy", at.clock, dumped=True)
        assert {name.split("/")[0] for name in names(tmp_path / "copy")} == {
            "columns", "parameters", "manifest.json",
        }  # fmt: skip
    shutil.rmtree(mine.columns_folder)
    backup.put_back(mine, tmp_path / "copy")
    with running(tmp_path, mine, at.clock) as again:
        ask(again, digest, number=1)
