"""Where the time of a run goes."""

import time


class Clock:
    """Seconds spent on each kind of work since the last lap."""

    def __init__(self) -> None:
        self._seconds = {"work": 0.0, "data": 0.0, "rest": 0.0, "validation": 0.0}
        self._steps = 0
        self._kind, self._since = "data", time.perf_counter()

    def start(self, kind: str) -> None:
        """What follows is of this kind."""
        self._note()
        self._steps += kind == "work"
        self._kind = kind

    def _note(self) -> None:
        now = time.perf_counter()
        self._seconds[self._kind] += now - self._since
        self._since = now

    def lap(self) -> tuple[float, float]:
        """Seconds per step, and the share of them outside of forward, backward and optimiser."""
        self._note()
        outside = self._seconds["data"] + self._seconds["rest"]
        whole, steps = self._seconds["work"] + outside, max(1, self._steps)
        self._seconds = dict.fromkeys(self._seconds, 0.0)
        self._steps = 0
        return whole / steps, outside / whole
