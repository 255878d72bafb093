"""What a simulation refuses before it starts anything. The rest is in tests/integration."""

import json

import pytest

from maskedlark import simulate
from maskedlark.errors import InvalidDocument, NotDeclared
from maskedlark.simulate import simulation
from maskedlark.simulate.errors import BadSimulation, OtherSimulation
from maskedlark.simulate.forked import ForkServer

TABLE = {"age": [20, 30] * 30, "euros": [1, 2] * 30}
PEOPLE = {"age": [20, 20, 30, 30] * 15, "bought": [0, 1] * 30}


@pytest.fixture
def nothing_starts(monkeypatch):
    """A service that was started would be a mistake."""
    monkeypatch.setattr(ForkServer, "fork", lambda *_: pytest.fail("starts"))


@pytest.mark.parametrize("bounds", [(0, 9.5), (0,), 5, ("0", "9")])
def test_bounds_are_two_whole_numbers(tmp_path, bounds):
    with pytest.raises(BadSimulation, match="'euros': its bounds are two whole numbers"):
        simulate.start(TABLE, tmp_path / "play", values={"euros": bounds})
    assert not (tmp_path / "play").exists()


def test_values_without_bounds_are_refused_and_told_how(tmp_path):
    with pytest.raises(BadSimulation, match=r"give each with its bounds, .* as in \{'bought': \(0, 1\)\}"):
        simulate.start(TABLE, tmp_path / "play", values=["euros"])  # type: ignore[arg-type]


@pytest.mark.usefixtures("nothing_starts")
def test_a_table_may_be_a_file_and_a_kind_as_it_is_typed(tmp_path, capsys):
    rows = zip(*PEOPLE.values(), strict=True)
    lines = [",".join(PEOPLE), *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "people.csv").write_text("\n".join(lines))
    for path in (tmp_path / "people.csv", str(tmp_path / "people.csv")):
        with pytest.raises(InvalidDocument):
            simulate.start(path, tmp_path / "play", label="bought", kinds={"age": "hashed:8"}, tag="ü")
        assert "  age      categories, hashed into 8 buckets      8" in capsys.readouterr().err
    with pytest.raises(NotDeclared, match="'hash' is no kind of column: there are number"):
        simulate.start(PEOPLE, tmp_path / "play", label="bought", kinds={"age": "hash"})


def test_fewer_rows_than_k_are_refused(tmp_path):
    with pytest.raises(BadSimulation, match="60 rows, fewer than k = 61"):
        simulate.start(TABLE, tmp_path / "play", values={"euros": (0, 9)}, k=61)
    assert not (tmp_path / "play").exists()


@pytest.mark.usefixtures("nothing_starts")
def test_settings_that_are_refused_leave_the_folder_to_those_that_are_mended(tmp_path):
    for tag in ("Käufer", "Käuferin"):
        with pytest.raises(InvalidDocument, match="tag"):
            simulate.start(PEOPLE, tmp_path / "play", label="bought", tag=tag)
    assert not (tmp_path / "play" / "simulation.json").exists()


@pytest.mark.usefixtures("nothing_starts")
def test_the_folder_of_another_simulation_is_refused(tmp_path):
    (tmp_path / "simulation.json").write_text('{"users": "another"}')
    with pytest.raises(OtherSimulation, match="its table or columns differ"):
        simulate.start(PEOPLE, tmp_path, label="bought")


@pytest.mark.usefixtures("nothing_starts")
def test_where_nobody_listens_a_leak_is_a_warning(tmp_path):
    table = {**PEOPLE, "name": [f"u{place}" for place in range(60)]}
    heard: list[str] = []
    named = ["age", "name"]
    said = "name has a different text in every row: if it names people, leave it out"
    with pytest.warns(UserWarning, match=said) as warned, pytest.raises(InvalidDocument):
        simulate.start(table, tmp_path, label="bought", features=named, tag="ü")
    assert [each.filename for each in warned] == [__file__]
    with pytest.raises(InvalidDocument):  # No warning, which would be an error here.
        simulate.start(table, tmp_path, label="bought", features=named, tag="ü", say=heard.append)
    assert heard[0] == said


@pytest.mark.usefixtures("nothing_starts")
def test_where_nobody_listens_what_became_a_feature_is_printed(tmp_path, capsys):
    table = {**PEOPLE, "seen": ["2026-01-01", "2026-01-02"] * 30}
    with pytest.raises(InvalidDocument):
        simulate.start(table, tmp_path, label="bought", tag="ü")
    lines = capsys.readouterr().err.splitlines()
    assert "  age      number from 20 to 30      1" in lines
    assert "  seen     no feature: dates" in lines


def test_settings_that_differ_from_a_folders_are_named(tmp_path):
    (tmp_path / "simulation.json").write_text(
        json.dumps({"users": "1", "helpers": 2, "settings": 'k = 100\nkeys = ["a"]\nfake_rate = 0.2'})
    )
    now = {"users": "1", "helpers": 2, "settings": 'k = 50\nkeys = ["a"]\nchecks = true\nfake_rate = 0.2'}
    with pytest.raises(OtherSimulation, match=r"its settings \(k, checks\) differ\. Start it as it was"):
        simulation._same(tmp_path, now)
    with pytest.raises(OtherSimulation, match=r"its number of helpers differ"):
        simulation._same(tmp_path, {**now, "helpers": 3})


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("helpers", [1, 0])
def test_one_helper_is_too_few(tmp_path, helpers):
    with pytest.raises(BadSimulation, match="is shared among at least 2 helpers"):
        simulate.start(PEOPLE, tmp_path / "play", label="bought", helpers=helpers)
    assert not (tmp_path / "play").exists()


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"helpers": 20}, "helpers: at most 16 items, not 20"),
        ({"tag": "a\nb"}, r"models\.0\.tag: use letters, digits, and any of '_\.:/ -'"),
    ],
)
def test_a_document_is_refused_in_plain_words(tmp_path, options, said):
    with pytest.raises(InvalidDocument, match=said):
        simulate.start(PEOPLE, tmp_path / "play", label="bought", **options)
