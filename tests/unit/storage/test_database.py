import pytest
from sqlalchemy.exc import DataError, OperationalError

from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OperationalError("SELECT 1", None, Exception("disk is full\nmore")), "disk is full"),
        # What is wrong with a value may quote it.
        (DataError("SELECT 1", None, Exception("no such number: planted-1c88")), "DataError"),
    ],
)
def test_the_operator_reads_what_the_database_says_of_itself_and_no_value(tmp_path, caplog, error, said):
    database = open_database(f"sqlite:///{tmp_path / 'some.db'}")
    with pytest.raises(StorageUnavailable) as caught, database.read():
        raise error
    database.close()
    assert caplog.messages == [f"the database cannot answer: {said}"]
    assert "planted" not in caplog.text + str(caught.value)
