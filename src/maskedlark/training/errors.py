"""What a training run can be wrong about.

MaskedLarkError
├── OtherRun                    a folder that holds another run, or another model or optimiser
└── NotAModel                   a file that is no model saved by us
"""

from maskedlark.errors import DecodeError, MaskedLarkError


class OtherRun(MaskedLarkError):
    """The folder holds another run: another session, model or optimiser."""


class NotAModel(DecodeError):
    """A file that is no model saved by us."""
