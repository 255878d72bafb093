"""At its start every worker of a helper reads a small file and writes one. Who cannot is counted, and why."""

import os
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest

from maskedlark.clock import FixedClock
from maskedlark.compute.engine import Engine, SerialEngine
from maskedlark.compute.local import LocalEngine
from maskedlark.compute.settings import ComputeSettings, open_engine
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.dataset_files import DatasetFiles, LocalFiles, SealedFiles, key_of
from maskedlark.helper.errors import UnreadableStorage
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable
from tests.unit.compute.private_files import PrivateFiles, ReadOnlyFiles


def check(folder: Path, storage: DatasetFiles | None, engine: Engine) -> None:
    with closing(open_database(f"sqlite:///{folder / 'helper.sqlite'}")) as database:
        context = DatasetContext(folder / "columns", database, "helper-0", FixedClock(1), storage=storage)
        context.check_workers(engine)


class Elsewhere(SerialEngine):
    """This process, as if it were on another machine."""

    is_elsewhere = True
    workers = 2


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("error", [PermissionError(13, "not for you"), RuntimeError("a bucket's own")])
def test_workers_that_may_not_read_are_counted(tmp_path, monkeypatch, sealed, error):
    storage = SealedFiles(f"file://{tmp_path}/sealed", key_of(b"secret")) if sealed else None
    check(tmp_path, storage, Elsewhere())

    def refused(*_: object) -> BinaryIO:
        raise error

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.cat_file", refused)
    monkeypatch.setattr(LocalFiles, "open", refused)
    said = rf"^2 of 2 workers cannot read .* \({type(error).__name__}\): name storage"
    with pytest.raises(UnreadableStorage, match=said):
        check(tmp_path, storage, Elsewhere())


def test_workers_in_processes_of_their_own_are_counted(tmp_path):
    with closing(LocalEngine(2)) as engine, pytest.raises(UnreadableStorage, match="2 of 2 workers"):
        check_private(tmp_path, engine)


def test_workers_that_may_only_read_are_counted(tmp_path):
    with closing(LocalEngine(2)) as engine:
        engine.is_elsewhere = True
        said = r"^2 of 2 workers cannot write where .* \(PermissionError\): name storage"
        with pytest.raises(UnreadableStorage, match=said):
            check(tmp_path, ReadOnlyFiles(tmp_path / "shared", os.getpid()), engine)
    assert not [*(tmp_path / "shared").iterdir()]


@pytest.mark.parametrize("what", ["write", "remove"])
def test_one_of_two_workers_that_may_not_change_files_is_counted(tmp_path, monkeypatch, what):
    """Also one that leaves behind what it wrote."""
    calls, allowed = [], getattr(SealedFiles, what)

    def refused(*given: object) -> object:
        calls.append(given)
        if len(calls) == 2:
            raise PermissionError(13, "not for you")
        return allowed(*given)

    monkeypatch.setattr(SealedFiles, what, refused)
    storage = SealedFiles(f"file://{tmp_path}/sealed", key_of(b"secret"))
    with pytest.raises(UnreadableStorage, match=r"^1 of 2 workers cannot write where .* \(PermissionError\)"):
        check(tmp_path, storage, Elsewhere())
    assert not [*(tmp_path / "sealed").iterdir()]


@pytest.mark.long
def test_workers_on_a_cluster_are_counted(tmp_path):
    """Files on the helper's own disk, which another user's workers may not read."""
    settings = ComputeSettings(engine="ray", address="local", workers=2)
    with closing(open_engine(settings, "helper-0")) as engine:
        check(tmp_path, None, engine)
        with pytest.raises(UnreadableStorage, match=r"2 of 2 workers .* \(PermissionError\)"):
            check_private(tmp_path, engine)


def check_private(folder: Path, engine: Engine) -> None:
    engine.is_elsewhere = True  # Local workers are on the same machine, and are not checked.
    private = PrivateFiles(folder / "private", os.getpid())
    check(folder, private, engine)


def test_what_the_helper_itself_cannot_write_is_said(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(LocalFiles, "write", full)
    with pytest.raises(StorageUnavailable, match="cannot be written"):
        check(tmp_path, None, Elsewhere())


@pytest.mark.parametrize("sealed", [False, True])
def test_what_killed_helpers_left_is_removed(tmp_path, sealed):
    storage = SealedFiles(f"file://{tmp_path}/sealed", key_of(b"secret")) if sealed else None
    folder = tmp_path / ("sealed" if sealed else "columns")
    folder.mkdir()
    for name in ("probe-0123", ".writing-4567"):
        (folder / name).write_bytes(b"left")
    check(tmp_path, storage, Elsewhere())
    assert not [*folder.iterdir()]
