"""What a third party can check of a session's receipts, beside its cost. Run by anyone.

The number of batches that a record is in comes from a secret seed. A Poisson course says the most that
helpers allow, which everybody can compute; all other courses say exactly how often a record is used.
"""

from maskedlark.dp import sampling
from maskedlark.dp.session_charge import Course, announced, crowded
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt
from maskedlark.parameters import randomised
from maskedlark.parameters.document import Document


def check(receipt: OpenedReceipt, document: Document, records: int) -> None:
    """Refuse an opening with other noise than is declared, or with a course that its sampling does not have.

    `records`: of all its datasets. Of the model there may be fewer.
    """
    if len(receipt.slots) != len(receipt.datasets):
        raise BadReceipt(f"receipt {receipt.number} has not one slot for each dataset")
    if receipt.course is None:
        if (lacking := randomised.missing(document, receipt.tag)) is not None:
            raise BadReceipt(f"receipt {receipt.number} opens a session without noise, but {lacking}")
        return
    course, mechanism = receipt.course, document.mechanisms["train"]
    if course.mechanism != mechanism.kind or course.noise < mechanism.noise_floor:
        raise BadReceipt(f"receipt {receipt.number} has other noise than its document declares")
    if course.steps != receipt.sampling.uses(receipt.steps) or not _follows(receipt, course):
        raise BadReceipt(f"receipt {receipt.number} has another course than its sampling makes")
    if not crowded(course, records, document.k, receipt.sampling.held_out):
        raise BadReceipt(f"receipt {receipt.number} counts on batches that may be below k")


def _follows(receipt: OpenedReceipt, course: Course) -> bool:
    """Whether rate and batches are those of the sampling."""
    rate = receipt.sampling.rate
    if rate is None or rate == 1:
        return course.rate == 1 and course.batches == course.steps
    least = announced(course.mechanism, course.noise, rate, course.steps, course.delta)
    return course.rate in (rate, 1.0) and course.batches >= least


def check_end(receipt: ClosedReceipt, opened: OpenedReceipt) -> None:
    """Refuse a closing that keeps less of a course than was used."""
    if receipt.used > opened.steps or receipt.course != opened.course:
        raise BadReceipt(f"receipt {receipt.number} closes another session than was opened")
    if (receipt.kept is None) != (opened.course is None):
        raise BadReceipt(f"receipt {receipt.number} says nothing of what it keeps")
    if receipt.kept is None or opened.course is None:
        return
    course, kept = opened.course, receipt.kept
    least = sampling.closed(opened.sampling, course, receipt.used)
    whole = (kept.steps, kept.batches) == (course.steps, course.batches)
    if not whole and (kept.steps != least.steps or not least.batches <= kept.batches <= course.batches):
        raise BadReceipt(f"receipt {receipt.number} keeps less of a session than was used")
