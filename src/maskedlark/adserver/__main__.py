"""`python -m maskedlark.adserver` runs an ad server over a database of its own."""

import argparse
import logging
import sys

from maskedlark.adserver.app import create_app
from maskedlark.clock import SystemClock
from maskedlark.errors import MaskedLarkError
from maskedlark.storage.engine import open_database
from maskedlark.storage.reports import Reports
from maskedlark.web.serving import serve


def main() -> None:
    """Read the command line, open the database, serve."""
    parser = argparse.ArgumentParser(prog="python -m maskedlark.adserver", description=__doc__)
    parser.add_argument("--origin", required=True, help="whose reports it takes, as in ads.example")
    parser.add_argument("--database", required=True, help="where it keeps them, as in sqlite:///reports.db")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    logging.basicConfig(format="maskedlark.adserver: %(message)s")
    clock = SystemClock()
    try:
        database = open_database(options.database)
        reports = Reports(database, clock)
    except MaskedLarkError as error:
        sys.exit(f"maskedlark.adserver: {error}")
    try:
        serve(create_app(options.origin, reports, clock), options.host, options.port)
    finally:
        database.close()


if __name__ == "__main__":
    main()
