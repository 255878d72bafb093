"""Reading a party's TOML: what is wrong is one line that says what to write, and holds no value."""

from pathlib import Path

import pytest
from pydantic import Field

from maskedlark.web import config
from maskedlark.web.config import Address, DatabaseUrl, PartyConfig
from maskedlark.web.errors import BadConfig
from maskedlark.wire.message import Settings


class Inner(Settings):
    size: int = Field(default=3, description="size = 3")


class Party(PartyConfig):
    file: Path = Field(description='file = "a"')
    database: DatabaseUrl = Field(
        default="sqlite:///a.db", repr=False, description='database = "sqlite:///a"'
    )
    names: dict[str, int] = Field(default_factory=dict, description="[names] a = 1")
    inner: Inner = Field(default=Inner(), description="[inner] size = 3")


def read(folder, text):
    (folder / "party.toml").write_text(text)
    return config.read(folder / "party.toml", Party)


def test_what_stands_there_is_read_and_paths_are_beside_the_file(tmp_path, monkeypatch):
    assert read(tmp_path, 'file = "a"\n[inner]\nsize = 4\n').file == tmp_path / "a"
    monkeypatch.chdir(tmp_path)
    found = config.read(Path("party.toml"), Party)
    assert (found.file, found.inner.size) == (tmp_path / "a", 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'file: Field required. Write file = "a"'),
        ('file = "a"\ncolour = 1', "colour is not known; there are file, database, names, inner"),
        ('file = "a"\n[inner]\ncolour = 1', "inner.colour is not known; [inner] has size"),
        ('file = "a"\n[inner]\nsize = "3"', "inner.size: Input should be a valid integer. Write [inner]"),
        ('file = "a"\n[names]\na = "x"', "names.a: Input should be a valid integer. Write [names] a = 1"),
        ('file = 2026-01-01', "a date or time has no place here"),
        ("file =", "is no TOML: "),
    ],
)  # fmt: skip
def test_what_is_wrong_says_what_to_write(tmp_path, text, said):
    with pytest.raises(BadConfig) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path / "party.toml"))
    assert said in str(raised.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    with pytest.raises(BadConfig, match=r"file: Field required.*; colour is not known"):
        read(tmp_path, "colour = 1")


def test_another_kind_of_file_is_said_to_be_one_in_a_line(tmp_path):
    """A recipe where the ad server's own settings belong: every key was named with all that there are."""
    said = "another kind of file: of loss, out, steps nothing is known here; there are file, database, names"
    with pytest.raises(BadConfig, match=said):
        read(tmp_path, 'file = "a"\nsteps = 3\nloss = "bce"\nout = "model.pt"')
    with pytest.raises(BadConfig, match=r"databas is not known; .*; name is not known; "):
        read(tmp_path, 'file = "a"\ndatabas = "b"\nname = "c"')


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(BadConfig, match=r"party.toml cannot be read: No such file"):
        config.read(tmp_path / "party.toml", Party)
    (tmp_path / "party.toml").write_bytes(b"\xff")
    with pytest.raises(BadConfig, match="is no TOML"):
        config.read(tmp_path / "party.toml", Party)


def test_a_password_is_neither_in_errors_nor_printed(tmp_path):
    with pytest.raises(BadConfig, match="database: ") as raised:
        read(tmp_path, 'file = "a"\ndatabase = "postgresql://me:secret@host:port/a"')
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(read(tmp_path, 'file = "a"\ndatabase = "postgresql://me:secret@host/a"'))


def test_a_text_is_checked_before_it_is_written():
    config.check("--address", Address, "https://h.example")
    with pytest.raises(BadConfig, match="--address: not an address"):
        config.check("--address", Address, "h.example")
