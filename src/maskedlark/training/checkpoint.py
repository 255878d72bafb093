"""A run on disk: its session's request, and checkpoints of model and optimiser. Run by the ad server.

A run that was killed resumes from its folder: it reopens the session, loads the last checkpoint and repeats
the steps after it with the stored answers. Helpers repeat only the last step's answer, for the same weights.
"""

import io
import pickle
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import torch

from maskedlark.core.field import FieldArray, from_bytes, to_bytes
from maskedlark.storage import file_lock
from maskedlark.training.errors import NotAModel, OtherRun, RunInUse
from maskedlark.web import files

_REQUEST, _STATE, _ANSWER, _LOCK = "session.json", "checkpoint.pt", "answer-", ".training"
_ZIP = b"PK\3\4"
UNREADABLE = (
    RuntimeError, pickle.UnpicklingError, LookupError, TypeError, ValueError, EOFError, AttributeError,
    AssertionError, OSError, MemoryError, OverflowError,
)  # fmt: skip
"""What torch raises for files that are not its own or hold something else."""


class Stateful(Protocol):
    """The interface of torch's optimisers, schedulers and modules."""

    def state_dict(self) -> dict[str, Any]:
        """All of its state."""

    def load_state_dict(self, state: dict[str, Any], /) -> object:
        """Restore the state."""


def read_saved(path: Path) -> Any:  # noqa: ANN401 - whatever was saved
    """Load what torch saved, as data: nothing in it is executed. Only torch's newest format is read."""
    data = path.read_bytes()
    if not data.startswith(_ZIP):
        raise NotAModel(f"{path} is no file that torch has saved")
    try:
        with warnings.catch_warnings(action="ignore"):  # About invalid files, which are refused.
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise NotAModel(f"{path} is no file that torch has saved: {type(error).__name__}") from None


def kept(folder: Path) -> bytes | None:
    """The stored request of the folder's session; None if there is none."""
    path = folder / _REQUEST
    return path.read_bytes() if path.exists() else None


def is_begun(folder: Path) -> bool:
    """Whether a run in this folder has got as far as its first weights."""
    return (folder / _STATE).exists()


@dataclass(eq=False)
class Run:
    """The folder of a run, used by one loop at a time."""

    folder: Path
    request: bytes
    before: bytes | None = None
    """The request that was stored when this one was made: this one may replace it."""

    @classmethod
    def of(cls, folder: Path, request: bytes) -> Self:
        """A run that continues in this folder, or replaces one that never began."""
        return cls(folder, request, kept(folder))

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Lock the folder while the block runs. Its request is stored before it is sent: a lost id would be
        charged again.
        """
        in_use = f"another process or thread trains in {self.folder}: wait until it is done, or give another"
        with file_lock.held(self.folder / _LOCK, wait=False, refusal=RunInUse(f"{in_use} folder")):
            stored = kept(self.folder)
            # One that was begun since this one was made stays, of course.
            if stored == self.before and (stored in (None, self.request) or not is_begun(self.folder)):
                files.write(self.folder / _REQUEST, self.request)
            elif stored != self.request:
                raise OtherRun(f"another run was begun in {self.folder} meanwhile: begin again, or elsewhere")
            yield

    def replace(self, request: bytes) -> None:
        """Replace the request, whose predecessor was not charged."""
        files.write(self.folder / _REQUEST, request)
        self.request = request

    def answered(self, step: int, asked: bytes) -> FieldArray | None:
        """A step's sum, if it was answered since the last checkpoint; `asked` is the digest of its body."""
        path = self.folder / f"{_ANSWER}{step}"
        data = path.read_bytes() if path.exists() else b""
        return from_bytes(data[len(asked) :]) if data.startswith(asked) else None

    def keep_answer(self, step: int, asked: bytes, total: FieldArray) -> None:
        """Store a step's sum durably, before the next step is requested."""
        files.write(self.folder / f"{_ANSWER}{step}", asked + to_bytes(total))

    def save(self, step: int, kept: Sequence[Stateful]) -> None:
        """Durably and atomically save the state before this step."""
        held = io.BytesIO()
        states = [(type(each).__name__, each.state_dict()) for each in kept]
        torch.save({"step": step, "kept": states}, held)
        files.write(self.folder / _STATE, held.getvalue())
        for path in self.folder.glob(f"{_ANSWER}*"):
            path.unlink()

    def load(self, kept: Sequence[Stateful]) -> int | None:
        """Restore the state and return the next step; None if nothing was saved."""
        path = self.folder / _STATE
        if not path.exists():
            return None
        try:
            saved = read_saved(path)
            step, states = int(saved["step"]), [(str(kind), state) for kind, state in saved["kept"]]
        except (NotAModel, *UNREADABLE):
            raise OtherRun(f"{path} is no checkpoint of a run: begin in another folder") from None
        there, now = [kind for kind, _ in states], [type(each).__name__ for each in kept]
        if there != now:
            raise OtherRun(
                f"{path} holds the state of {', '.join(there)}; kept now are {', '.join(now)}: keep the same "
                "model, optimiser and scheduler, in the same order, or begin in another folder"
            )
        for each, (_, state) in zip(kept, states, strict=True):
            try:
                each.load_state_dict(state)
            except UNREADABLE:
                raise OtherRun(
                    f"{path} holds another {type(each).__name__} than this: make it as it was, or begin in "
                    "another folder"
                ) from None
        return step
