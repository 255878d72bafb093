"""Errors of training runs."""

from maskedlark.errors import BadArguments, DecodeError, MaskedLarkError, NotDeclared

NO_ENCODER = (
    "the model has no encoder to make bytes of a table: pass encoder.encode(table), uint8 (n, features), by "
    "the one that made browsers' bytes; or make the model with it (encoder=)"
)
NO_ROWS = "the table has no rows"


class OtherRun(MaskedLarkError):
    """The folder holds another run: another session, model or optimiser, or a checkpoint that is damaged."""


class OverCeiling(BadArguments):
    """The run would cost more than the document allows for training. Nothing was charged."""


class RunInUse(MaskedLarkError):
    """Another process or thread trains in the folder: two could be charged for one run."""


class BadRun(MaskedLarkError):
    """A run is described by a model, an optimiser or a scheduler that cannot be made."""


class NotAModel(DecodeError):
    """A file that is no model saved by us."""


class RowsDoNotFit(NotDeclared):
    """Rows that a model cannot be fitted to or asked about: another width or type, or none at all."""


class Untrained(UserWarning):
    """A run is evaluated of which no step was taken: the weights are those that it was given."""
