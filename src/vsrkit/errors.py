"""Errors that the command line prints as one line; other exceptions are bugs."""


class VsrkitError(Exception):
    """An error the user can fix: says what was found, what was expected and what to do."""


class UsageError(VsrkitError):
    """A command whose arguments do not fit together; it ends with exit code 2."""


class UnknownModelError(VsrkitError):
    """No preset, model or weight file has this name."""


class WeightsError(VsrkitError):
    """A weight file is missing, damaged, not a model, or for a different architecture."""


class DataError(VsrkitError):
    """A data set, clip or frame is missing, damaged or of the wrong size."""


class VideoError(VsrkitError):
    """A video cannot be read or written."""


class MemoryLimitError(VsrkitError):
    """A job does not fit into its memory limit."""


class StoppedError(VsrkitError):
    """The user stopped a job that can be resumed."""
