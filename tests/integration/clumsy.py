"""`python -m tests.integration.clumsy` is `maskedlark` with mistakes: it trips over these words."""

import logging
import os

from maskedlark.cli import app
from maskedlark.storage import engine
from maskedlark.web import body

FAILS = b"clumsy-fails"
"""A body that holds this is in the message of an unexpected error."""
LEAKS = b"clumsy-leaks"
"""A body that holds this is in the log."""
CRASHES = "CLUMSY_CRASHES"
"""In the environment: the address of the database is in the message of an error at the start."""


def main() -> None:
    body.read = _stumbling(body.read)
    if CRASHES in os.environ:
        engine.open_database = _crashing
    app()


def _stumbling(plain):
    async def read(request, *limits):
        found = await plain(request, *limits)
        if FAILS in found:
            raise ValueError(found, found.hex())
        if LEAKS in found:
            logging.getLogger("maskedlark.clumsy").warning("took %s", found.hex())
        return found

    return read


def _crashing(url, *_, **__):
    raise RuntimeError(f"no database at {url}")


if __name__ == "__main__":
    main()
