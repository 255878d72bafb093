"""Make the test vectors of version 2: `python -m vectors.generate`. The files are the same each time."""

from collections.abc import Callable

from vectors import FOLDER, bad, checks, good, local_noise, rounding, signed, written
from vectors.good import Vectors

FILES: dict[str, Callable[[], Vectors]] = {
    "shares": good.shares,
    "labels": good.labels,
    "quantisation": good.quantisation,
    "rounding": rounding.rounding,
    "noise": local_noise.noise,
    "response": local_noise.response,
    "masks": good.masks,
    "columns": good.encoded,
    "layouts": good.layouts,
    "reports": good.reports,
    "uploads": good.uploaded,
    "documents": signed.good,
    "keys": good.keys,
    "bits": checks.bits,
    "checks": checks.checks,
    "bad": bad.vectors,
}


def text(name: str) -> str:
    """One file of vectors, as it is stored."""
    return written(FILES[name]())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file in FILES:
        (FOLDER / f"{file}.json").write_text(text(file))
