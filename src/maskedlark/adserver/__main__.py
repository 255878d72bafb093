"""`python -m maskedlark.adserver` runs an ad server over a database of its own."""

import argparse
import logging
import sys
from pathlib import Path

from maskedlark.adserver.app import create_app
from maskedlark.clock import SystemClock
from maskedlark.errors import MaskedLarkError
from maskedlark.storage.engine import open_database
from maskedlark.storage.reports import Reports
from maskedlark.web.serving import serve


def main() -> None:
    """Read the command line, open the database, serve."""
    parser = argparse.ArgumentParser(prog="python -m maskedlark.adserver", description=__doc__)
    parser.add_argument(
        "--config", type=Path, help="an adserver.toml, which has both: no password on a command line"
    )
    parser.add_argument("--origin", help="or: whose reports it takes, as in ads.example")
    parser.add_argument("--database", help="and where it keeps them, as in sqlite:///reports.db")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    apart = (options.origin, options.database)
    if (apart != (None, None)) if options.config else (None in apart):
        parser.error("give either --config, or --origin and --database")
    logging.basicConfig(format="maskedlark.adserver: %(message)s")
    clock = SystemClock()
    try:
        origin, url = _settings(options.config) if options.config else apart
        database = open_database(url)
        reports = Reports(database, clock)
    except MaskedLarkError as error:
        sys.exit(f"maskedlark.adserver: {error}")
    try:
        serve(create_app(origin, reports, clock), options.host, options.port)
    finally:
        database.close()


def _settings(path: Path) -> tuple[str, str]:
    from maskedlark.adserver import config  # noqa: PLC0415 - who does without starts without an accountant

    found = config.read(path)
    return found.origin, found.database


if __name__ == "__main__":
    main()
