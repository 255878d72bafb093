"""What helpers have charged."""

from maskedlark.ledger.receipt import ReleaseReceipt


def charges(way):
    """How many releases the first helper has charged."""
    receipts = [each.claimed() for each in way.helpers[0].ledger.receipts(way.document.origin)]
    return sum(isinstance(each, ReleaseReceipt) for each in receipts)
