"""Server-sent events: every open page gets the newest value of everything that changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from vsrkit import __version__
from vsrkit.studio.errors import RequestError

MOST_PAGES = 100
QUIET_S = 15.0  # seconds after which a comment shows that the connection is alive


class Events:
    """Passes events on to the open pages.

    A page that reads slowly misses older values of the same thing, never the newest one, so that
    memory does not grow.
    """

    def __init__(self) -> None:
        self._pages: set[_Page] = set()
        self._closed = False

    @property
    def pages(self) -> int:
        """How many pages are open."""
        return len(self._pages)

    def publish(self, event: str, value: dict[str, Any], key: str = "") -> None:
        """Send an event to all pages.

        event: its name.
        value: the whole new value.
        key: what it is the value of; of events with the same name and key only the last counts.
        """
        if not self._pages:
            return
        content = _event(event, value)
        for page in self._pages:
            page.add((event, key), content)

    def open(self) -> AsyncIterator[bytes]:
        """The stream of one more page."""
        if len(self._pages) >= MOST_PAGES:
            raise RequestError(503, "too many pages are open")
        page = _Page()
        self._pages.add(page)
        return self._stream(page)

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for page in self._pages:
            page.wake.set()

    async def _stream(self, page: "_Page") -> AsyncIterator[bytes]:
        try:
            yield _event("hello", {"version": __version__})
            while not self._closed:
                try:
                    await asyncio.wait_for(page.wake.wait(), QUIET_S)
                except TimeoutError:
                    yield b":\n\n"
                    continue
                yield page.take()
        finally:
            self._pages.discard(page)


class _Page:
    """Events that wait to be sent to one page."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._waiting: dict[tuple[str, str], bytes] = {}

    def add(self, key: tuple[str, str], content: bytes) -> None:
        self._waiting.pop(key, None)  # the newest is also the last
        self._waiting[key] = content
        self.wake.set()

    def take(self) -> bytes:
        content = b"".join(self._waiting.values())
        self._waiting.clear()
        self.wake.clear()
        return content


def _event(name: str, value: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode("ascii")
