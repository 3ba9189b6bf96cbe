"""Ctrl-C: the parts at hand are finished, and the wait is told; pressed again, all ends at once."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vsrkit.upscale.parts import Part

log = logging.getLogger("vsrkit")


class AtHand:
    """The parts that are being made: how much is to come, and how long that will take."""

    def __init__(self, missing: Sequence[Part]) -> None:
        self._missing = {part.number: part for part in missing}
        self._made = {part.number: 0 for part in missing}
        self._begin = time.monotonic()

    def count(self, what: str, value: int) -> None:
        """Take note of a frame, or of a part that is finished."""
        if what == "frame":
            part = next(p for p in self._missing.values() if p.start <= value < p.stop)
            self._made[part.number] += 1
        elif what == "part":
            del self._missing[value]

    def describe(self) -> str:
        """What a stop would wait for."""
        begun = [part for part in self._missing.values() if self._made[part.number]]
        begun = begun or list(self._missing.values())[:1]
        made = sum(self._made[part.number] for part in begun)
        left = sum(part.stop - part.start for part in begun) - made
        all_made = sum(self._made.values())
        text = f"finishing the part at hand, {left} more frames"
        if all_made:
            seconds = (time.monotonic() - self._begin) / all_made * left
            text += (
                f", about {seconds:.0f} s" if seconds < 100 else f", about {seconds / 60:.0f} min"
            )
        return f"{text}; Ctrl-C again stops at once and loses {made}"


@contextmanager
def stopping(describe: Callable[[], str]) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets; pressed again it interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        log.warning("%s", describe())

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
