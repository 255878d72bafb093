import os
import subprocess
import sys

import pytest

from maskedlark.helper.errors import FolderInUse
from maskedlark.helper.folder_lock import only_process

HOLD = "import sys, pathlib; from maskedlark.helper.folder_lock import only_process\n"
HOLD += "with only_process(pathlib.Path(sys.argv[1])): print(flush=True); sys.stdin.read()"


def test_who_holds_a_folder_is_named_with_what_to_do(tmp_path):
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        said = f"another process, {other.pid}, runs on {tmp_path}: stop it with `kill {other.pid}`, and try"
        for _ in range(2):  # Whoever is refused does not take the holder's name away.
            with pytest.raises(FolderInUse, match=said), only_process(tmp_path):
                pytest.fail("it is held")
        other.kill()
    with only_process(tmp_path):
        assert (tmp_path / ".running").read_text() == str(os.getpid())


def test_a_folder_of_an_older_release_names_nobody(tmp_path):
    assert str(FolderInUse(tmp_path, "")) == (
        f"another process runs on {tmp_path}: stop it, and try again, or give another folder"
    )


def test_those_that_share_a_folder_keep_out_who_wants_it_alone_and_the_other_way_round(tmp_path):
    one, two = (only_process(tmp_path, shared=True) for _ in range(2))
    with one, two, pytest.raises(FolderInUse, match="another process runs on"), only_process(tmp_path):
        pytest.fail("it is shared")
    held, named = only_process(tmp_path), pytest.raises(FolderInUse, match=f"{os.getpid()}")
    with held, named, only_process(tmp_path, shared=True):
        pytest.fail("it is held")
