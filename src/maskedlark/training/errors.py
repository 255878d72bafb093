"""Errors of training runs."""

from maskedlark.errors import BadArguments, DecodeError, MaskedLarkError, NotDeclared


class OtherRun(MaskedLarkError):
    """The folder holds another run: another session, model or optimiser, or a checkpoint that is damaged."""


class OverCeiling(BadArguments):
    """The run would cost more than the document allows for training. Nothing was charged."""


class RunInUse(MaskedLarkError):
    """Another process trains in the folder: two would overwrite each other's checkpoints."""


class BadRun(MaskedLarkError):
    """A run is described by a model, an optimiser or a scheduler that cannot be made."""


class NotAModel(DecodeError):
    """A file that is no model saved by us."""


class RowsDoNotFit(NotDeclared):
    """Rows that a model cannot be fitted to or asked about: another width or type, or none at all."""
