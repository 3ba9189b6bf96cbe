"""Errors that become answers with a status."""

from vsrkit.errors import VsrkitError


class RequestError(VsrkitError):
    """A request that cannot be answered: an HTTP status, and one line about the reason."""

    def __init__(self, status: int, message: str, **more: object) -> None:
        """Keep what the answer needs.

        status: of HTTP.
        message: one line.
        more: further values of the answer.
        """
        super().__init__(message)
        self.status, self.more = status, more

    def __reduce__(self) -> tuple[type[Exception], tuple[int, str]]:
        return RequestError, (self.status, str(self))  # from a worker process


class UnknownError(RequestError):
    """There is nothing with this identifier."""

    def __init__(self, what: str) -> None:
        """What: the kind of thing that was asked for, such as `video`."""
        super().__init__(404, f"there is no such {what}")
