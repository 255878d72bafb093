import pytest
import typer
from typer.testing import CliRunner

from maskedlark.cli.plainly import plainly
from maskedlark.errors import NotDeclared

SECRET = "planted-3c21"


def outcome(error):
    app = typer.Typer()

    @app.command()
    @plainly
    def fail() -> None:
        raise error

    return CliRunner().invoke(app, [])


def test_an_error_of_ours_is_one_line():
    done = outcome(NotDeclared("declare it,\nand come again"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "NotDeclared: declare it, and come again\n"


def test_a_file_that_is_missing_is_named():
    done = outcome(FileNotFoundError(2, "No such file or directory", "there.toml"))
    assert (done.exit_code, done.stderr) == (1, "there.toml: No such file or directory\n")


def test_a_mistake_of_ours_says_where_and_not_what():
    done = outcome(ValueError(SECRET))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "in fail" in done.stderr
    assert done.stderr.endswith("ValueError: a mistake of ours; please report it\n")
    assert SECRET not in done.stderr


@pytest.mark.parametrize(("error", "code"), [(typer.Exit(3), 3), (typer.BadParameter("no"), 2)])
def test_what_the_command_line_says_stays(error, code):
    assert outcome(error).exit_code == code
