"""What a lying helper could sign."""

import json

from maskedlark.ledger import receipt
from maskedlark.ledger.receipt import SignedReceipt
from tests.unit.ledger.ledgers import Signs


def resigned(signed: SignedReceipt, **changes) -> SignedReceipt:
    """The receipt with other contents, signed by the helper's own key: what a lying helper could make."""
    item = json.loads(signed.receipt)
    for name, value in changes.items():
        place, _, inner = name.partition("__")
        if inner:
            item[place][inner] = value
        else:
            item[place] = value
    made = receipt._RECEIPT.validate_json(json.dumps(item))
    signs = Signs()
    return receipt.sign(made, signs.key, signs.certificate)


def rechained(chain: list[SignedReceipt], at: int, **changes) -> list[SignedReceipt]:
    """A chain whose receipt at a place was changed, and all later ones made to follow it."""
    out = chain[:at]
    for i, signed in enumerate(chain[at:], start=at):
        previous = out[-1].digest.hex() if out else None
        out.append(resigned(signed, previous=previous, **(changes if i == at else {})))
    return out
