"""The errors a person meets, in one place.

Every one carries a single sentence that names the culprit and the remedy. The command line prints that
sentence and leaves with a non-zero exit code; in Python they are ordinary exceptions.
"""


class CoresetviError(Exception):
    """Anything that coresetvi raises on purpose."""


class InputError(CoresetviError, ValueError):
    """What was passed in cannot be used: data, sizes, names, options."""


class ArtefactError(CoresetviError, ValueError):
    """A saved fit or checkpoint cannot be written, or cannot be read back safely."""


class NonFiniteError(CoresetviError, ArithmeticError):
    """A fit turned non-finite and `throw=True` asked for an exception instead of a result code."""
