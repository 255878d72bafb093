"""docs/OPERATIONS.md names the problems that an operator has to do something about."""

from pathlib import Path

import maskedlark.adserver.errors
import maskedlark.helper.errors  # noqa: F401 - it registers problems
from maskedlark.errors import MaskedLarkError
from maskedlark.web import problem

PAGE = (Path(__file__).parents[2] / "docs" / "OPERATIONS.md").read_text()
PASSING = {"Draining", "NotReady", "ServiceAway", "TooManyUploads"}
"""They mean: ask again. Nobody has to look them up."""
MET = {"WrongHelper", "MixedDatasets", "DatasetConflict", "NameTaken", "CertificateExpired", "LedgerBehind"}


def everything(root: type[MaskedLarkError]) -> set[type[MaskedLarkError]]:
    return {root}.union(*map(everything, root.__subclasses__()))


def test_the_page_names_what_keeps_a_service_from_its_work():
    failing = {each.__name__ for each in everything(MaskedLarkError) if (problem._status(each) or 0) >= 500}
    assert {"StorageUnavailable", "DiskFull", "KeysBehind", "NoReceiptKey"} <= failing
    assert {each for each in (failing - PASSING) | MET if f"`{each}`" not in PAGE} == set()
