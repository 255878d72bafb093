"""What the documents name exists: files, folders, tests, mutants, commands and linked pages."""

import csv
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from maskedlark import cli
from tests.mutants.table import MUTANTS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "maskedlark"
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
TESTS = {
    path.relative_to(ROOT).as_posix(): set(
        re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.M)
    )
    for path in (ROOT / "tests").rglob("test_*.py")
}
TREES = ("src", "tests", "benches", "vectors", "docs", "scripts", "deploy", "experiments")
THEIRS = ("play/", "model.py", "public/")
"""Files that a reader makes: they are not in the tree."""
RESULTS = ROOT / "docs" / "results"
COMMIT = re.compile(r"\b(?=\w*\d)(?=\w*[a-f])[0-9a-f]{7,12}\b")
PATH = re.compile(rf"(?:{'|'.join(TREES)})/[\w./*-]*|[\w./*-]+(?:\.(?:py|md|json|ipynb)|/)")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def named(page: Path) -> list[str]:
    """What stands in backticks."""
    return [name for name in re.findall(r"`([^`\n]+)`", prose(page)) if not name.startswith(THEIRS)]


def is_there(name: str) -> bool:
    """A file or folder by its path, from the root or in the package; or by its name alone, anywhere."""
    if any(any(home.glob(name)) for home in (ROOT, PACKAGE)):
        return True
    return "/" not in name and any(any((ROOT / tree).rglob(name)) for tree in TREES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_folders_are_there(page):
    # Commands have words after them, tests their names.
    first = [re.split(r"::|,? ", name)[0] for name in named(page)]
    paths = [name for name in first if PATH.fullmatch(name) and not name.startswith("/")]
    assert not [name for name in paths if not is_there(name.rstrip("/"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_are_there(page):
    known = set().union(*TESTS.values())
    for name in named(page):
        if "::" in name:
            path, _, test = name.partition("::")
            assert test in TESTS.get(path, ()), name
        elif re.fullmatch(r"(…|test_)[\w]+…?", name) and not name.endswith(".py"):
            pattern = re.escape(name).replace("…", r"\w*")
            assert any(re.fullmatch(pattern, each) for each in known), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, heading = target.partition("#")
        if re.match(r"https?:", target):
            continue
        there = page.parent / path if path else page
        assert there.exists(), target
        assert not heading or heading in headings(there), target


SECTIONS = (
    "1", "2", "3", "3.1", "3.2", "3.3", "3.3.1", "4.1", "4.1.1", "4.1.2", "4.2", "4.2.1", "4.2.2", "4.2.3",
    "5", "5.1", "5.1.1", "5.2", "5.3", "5.4", "6",
)  # fmt: skip
"""Of the paper. 4 is nothing but its parts."""


def rows(page: str) -> list[list[str]]:
    """The rows of tables, heads included."""
    table = (re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if line.startswith("| "))
    return [[cell.strip() for cell in row] for row in table]


def statements() -> list[list[str]]:
    """The paper's: section, statement, what became of it, and what shows that."""
    part = (ROOT / "docs" / "PAPER.md").read_text().partition("\n## Statement by statement\n")[2]
    return rows(part.partition("\n## ")[0])[1:]


def test_statements_are_of_every_section_of_the_paper_and_say_what_became_of_them():
    assert {section for row in statements() for section in row[0].split(", ")} == {"abstract", *SECTIONS}
    for _, statement, state, shown in statements():
        assert state.startswith("works") or "](DEVIATIONS.md#" in state, statement
        assert state.startswith("not built") or re.search("`(tests/|maskedlark )", shown), statement
    states = ("works", "differs", "not built")
    works, differs, lacking = [sum(row[2].startswith(each) for row in statements()) for each in states]
    told = f"Of {len(statements())} statements {works} work, {differs} differ, and {lacking} are not built."
    assert told in (ROOT / "docs" / "PAPER.md").read_text()
    assert works + differs + lacking == len(statements())


def test_statements_link_words_of_a_row_on_deviations():
    page = (ROOT / "docs" / "DEVIATIONS.md").read_text()
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")[1:]}
    found = {anchor(title): "\n".join(map(" | ".join, rows(part))) for title, part in sections.items()}
    for *_, state, _shown in statements():
        for words, heading in re.findall(r"\[([^]]+)\]\(DEVIATIONS\.md#([^)]+)\)", state):
            assert words in found[heading], words


def test_the_readme_links_every_page():
    linked = set(re.findall(r"\]\((docs/[^)#\s]+)", (ROOT / "README.md").read_text()))
    pages = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert not pages - linked


def headings(page: Path) -> set[str]:
    """The anchors of a page, as renderers of Markdown make them."""
    return {anchor(title) for title in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)}


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def git(*words: str, given: str = "") -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout


@pytest.mark.long  # A history that is written anew, as by a squashed merge, is no mistake of the code.
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone: there is no history")
def test_commits_are_in_the_history():
    """Those that made a figure: by them a reader finds the code that did."""
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a clone without its history")
    texts = [prose(page) for page in (*PAGES, RESULTS / "README.md")]
    for path in RESULTS.glob("*.csv"):
        texts += [row.get("commit") or "" for row in csv.DictReader(path.read_text().splitlines())]
    named = {name for text in texts for name in COMMIT.findall(text)} - {"ed25519"}
    assert named
    said = git("cat-file", "--batch-check", given="\n".join(sorted(named))).splitlines()
    assert not [line for line in said if line.split()[1] != "commit"]


def claims() -> list[str]:
    """The claims of the page, each with its list of assumptions, files, tests and mutants."""
    claimed = (ROOT / "docs" / "CLAIMS.md").read_text().partition("\n## What is not promised")[0]
    return re.split(r"^\*\*(?=\d+\. )", claimed, flags=re.MULTILINE)[1:]


def test_claims_are_numbered_and_each_says_against_whom_where_and_what_would_notice():
    assert [int(claim.partition(".")[0]) for claim in claims()] == [*range(1, len(claims()) + 1)]
    for claim in claims():
        items = [
            re.findall(rf"^- {what}", claim, re.MULTILINE) for what in ("Against", "Enforced in", "Tests:")
        ]
        assert [len(each) for each in items] == [1, 1, 1], claim


def test_every_mutant_is_of_a_claim_or_of_none_for_a_reason():
    parts = [part for claim in claims() for part in re.findall(r"^- Mutants:(.*?)\.$", claim, re.M | re.S)]
    shown = {name for part in parts for name in re.findall(r"`([^`]+)`", part)}
    promised = {mutant.promise for mutant in MUTANTS}
    assert shown <= promised
    of_no_claim = {
        "the retention: a dataset that is being sent keeps its reports",
        # These keep an origin from wasting its own budget: sources cost no more without them.
        "the order: the first helper alone decides what the rest of a budget is for",
        "the order: the first helper is the last to refund a session",
        "a refusal: is one only if no other sending of the request may be charged",
        "a refusal: a helper says when what it refuses was charged before",
        "fitting: a question that was answered is not charged again",
        "fitting: earlier charges do not make another question of the same fit",
        "evaluating: it costs half an ε unless said, not whatever the floor costs",
        "evaluating: the same question again is not charged again",
        # These keep an ad server from errors in what it fits: no source is concerned.
        "fitting: fakes count as nothing",
        "fitting: intervals cover as often as they say",
        "fitting: intervals count that browsers round labels at random",
        "fitting: coefficients on their way to infinity are warned of",
        "fitting: what failed after its release is not fitted",
        "fitting: a model is evaluated on the label that it was fitted to",
        "labels of cells: nobody knows how many records are fakes",
        "fitting: models of different maps are not compared",
        "evaluating: of a part that only helpers know, zeros are counted too",
        "measures: where ones alone are released, a one more is a zero less",
        "the bound: a rare label's error counts as 1, as it is once the model knows that it is rare",
        "a run: its encoder's columns scale activations",
        # These keep sums from leaving the field, and an origin from what it could never ask or open.
        "the field: rows of more records than it was checked for are dropped",
        "the field: one sum over more records is refused before it is charged",
        "the field: a step's sum is bounded by its largest batch",
        "a session: is planned for all weights that it may come to, not for its first",
        "a dataset: too large for a release is not frozen",
        "a plan: refuses batches of more than a release may have, as opening would",
        "a query: a stored answer is shown in the order in which it is asked for",
        "a query: the same in another order is not charged again",
        "a run: whose steps were taken is not opened again",
        "evaluating: what cannot be recalibrated is refused before it is charged",
        "fitting: no fold of a cross-validation is charged",
        # These are about a simulation, in which one user plays all parties.
        "services that are forked: draw nothing that another draws",
        "services: end with whoever started them, also where the connection fails instead of ending",
        "a plan: refuses what helpers would refuse",
        "a run: one that was opened keeps its folder",
        # This keeps an ad server's own files from a model that somebody gave it: no source is concerned.
        "onnx: weights beside a model are reached by a plain name alone",
        # The accuracy of sums and models depends on this. It is not claimed.
        "a decimal: is rounded at random",
        # Of these availability depends, which is not claimed.
        "an upload: never waits for the parameter service",
        "an upload: a report is not refused for want of a document",
        "a cell: an answer has no more rows than cells",
    }
    assert promised - shown == of_no_claim


def commands(page: Path) -> list[list[str]]:
    """What a page tells to type: the words of every `maskedlark` command, in blocks and in the text."""
    text = page.read_text().replace("\\\n", " ")
    typed = re.findall(r"^ *\$? *(maskedlark [^\n]*)", text, re.MULTILINE)
    return [line.split("#")[0].split() for line in (*typed, *re.findall(r"`(maskedlark [^`\n]*)`", text))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_are_there(page):
    for _, *words in commands(page):
        name, rest = words[0], words[1:]
        if not re.fullmatch(r"[a-z-]+", name):
            continue
        assert name in cli._COMMANDS, words
        command: Any = cli.load(name)
        if hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, words
            command = command.commands[rest[0]]
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        given = {word.strip("`,.;:)…") for word in rest if re.match(r"--[a-z]", word)}
        assert {word.partition("=")[0] for word in given} <= known, words


def declared() -> dict[str, set[str]]:
    """The packages of `pyproject.toml`, with the extras that have them; "" where all need it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, set[str]] = {}
    for extra, wanted in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for each in wanted:
            extras.setdefault(re.split(r"[^\w-]", each)[0], set()).add(extra)
    return extras


def test_every_dependency_has_a_reason():
    section = (
        (ROOT / "CONTRIBUTING.md").read_text().split("\n## Dependencies, and why\n")[1].split("\n## ")[0]
    )
    reasons: dict[str, set[str]] = {}
    for cell in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE):
        packages, _, kept = cell.partition(" (")
        extras = {"dev"} if kept == "development)" else set(re.findall(r"`([^`]+)`", kept)) or {""}
        reasons |= dict.fromkeys(re.findall(r"`([^`]+)`", packages), extras)
    assert reasons == declared()
