import pytest
import typer
from typer.testing import CliRunner

import maskedlark.adserver.errors
import maskedlark.exact.errors
import maskedlark.features.errors
import maskedlark.helper.errors
import maskedlark.ledger.errors
import maskedlark.release.errors
import maskedlark.simulate.errors
import maskedlark.storage.errors
import maskedlark.training.errors
import maskedlark.web.errors
from maskedlark.cli.error_handling import CODES, exit_code, report_errors
from maskedlark.errors import MaskedLarkError, NotDeclared

SECRET = "planted-3c21"


def outcome(error):
    app = typer.Typer()

    @app.command()
    @report_errors
    def fail() -> None:
        raise error

    return CliRunner().invoke(app, [])


def test_an_error_of_ours_is_one_line():
    done = outcome(NotDeclared("declare it,\nand come again"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "NotDeclared: declare it, and come again\n"


def tree(root=MaskedLarkError):
    yield root
    for below in root.__subclasses__():
        yield from tree(below)


ROOMS = (
    "adserver",
    "compute",
    "exact",
    "features",
    "helper",
    "ledger",
    "release",
    "simulate",
    "storage",
    "training",
    "web",
)
BUDGET = {"AccountClosed", "BudgetExhausted", "DeltaExhausted", "OverCeiling"}
AWAY = {
    *(
        "Busy",
        "CertificateExpired",
        "ClockDisagrees",
        "DiskFull",
        "Draining",
        "HelperAway",
        "NotReady",
        "ServiceAway",
        "SlotTaken",
    ),
    *("DiskShareUsed", "StorageUnavailable", "TooManyReports", "TooManyUploads", "WorkersLost"),
}


def test_every_error_of_ours_has_the_code_that_it_should():
    ours = {each for each in tree() if each.__module__.removeprefix("maskedlark.").split(".")[0] in ROOMS}
    ours = {each for each in ours if not each.__name__.startswith("_")}
    assert {each.__name__ for each in ours if exit_code(each) == 3} == BUDGET
    assert {each.__name__ for each in ours if exit_code(each) == 4} == AWAY
    assert {exit_code(each) for each in ours} == {1, 3, 4}
    assert {each for classes in CODES.values() for each in classes} <= ours, (
        "no entry is for an error that is gone"
    )


def test_the_code_is_what_the_command_ends_with():
    assert outcome(maskedlark.ledger.errors.BudgetExhausted(1.0, 2.0, None)).exit_code == 3
    assert outcome(maskedlark.web.errors.Draining("later")).exit_code == 4


def test_who_interrupts_gets_a_word_and_130():
    done = outcome(KeyboardInterrupt())
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")


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
