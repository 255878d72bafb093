"""Front ends of one helper share database and folder: one with another folder is refused at the start."""

from contextlib import closing

import pytest

from maskedlark.clock import FixedClock
from maskedlark.helper.errors import OtherFolder
from maskedlark.helper.folder_id import NAME, adopt_folder, check_folder
from maskedlark.helper.keyring import Keyring
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from tests.unit.helper.world import NAME as HELPER
from tests.unit.helper.world import NOW, running, settings
from tests.unit.parameters.cases import HELPER_KEYS


def test_the_second_front_end_needs_the_folder_of_the_first(tmp_path, postgresql_url):
    one, other = (settings(tmp_path / name, database=postgresql_url) for name in ("one", "other"))
    for config in (one, other):
        Keyring(config.keys_folder, HELPER).rotate(HELPER_KEYS[0], config.address, NOW, SystemRandomness())
    for _ in range(2):
        with running(tmp_path, one, FixedClock(NOW)):
            pass
    with (
        pytest.raises(OtherFolder, match="name that one") as refused,
        running(tmp_path, other, FixedClock(NOW)),
    ):
        pytest.fail("it must not start")
    assert not (other.folder / NAME).exists(), "nothing is decided by a folder that is refused"
    # What the message says helps.
    (other.folder / NAME).write_text(str(refused.value).split("write ")[1].split()[0] + "\n")
    with running(tmp_path, other, FixedClock(NOW)):
        pass


def test_folders_and_databases_that_have_no_id_get_one(tmp_path, database_url):
    one, other = tmp_path / "one", tmp_path / "other"
    with closing(open_database(database_url)) as database:
        check_folder(one, database)
        check_folder(one, database)
        with pytest.raises(OtherFolder):
            check_folder(other, database)
        adopt_folder(other, database)
        check_folder(other, database)
        with pytest.raises(OtherFolder):
            check_folder(one, database)
    # A new database takes the folder that comes.
    with closing(open_database(f"sqlite:///{tmp_path / 'new.sqlite'}")) as database:
        check_folder(one, database)
