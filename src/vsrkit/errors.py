"""Errors that the command line prints in one line; everything else is a bug and keeps its trace."""


class VsrkitError(Exception):
    """Something the user can mend: says what was found, what was wanted and what to do."""


class UnknownModelError(VsrkitError):
    """No preset, entry or file has this name."""


class WeightsError(VsrkitError):
    """A weight file is missing, damaged, not a model, or of another shape."""


class DataError(VsrkitError):
    """A data set, clip or frame is missing, damaged or does not fit."""


class VideoError(VsrkitError):
    """A video cannot be read or written."""


class MemoryLimitError(VsrkitError):
    """A job does not fit into the memory that it may take."""


class StoppedError(VsrkitError):
    """The user stopped a job that can go on."""
