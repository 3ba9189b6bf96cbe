"""The best of a few interleaved runs, for the benchmarks."""

import time
from collections.abc import Callable
from typing import Any


def best_seconds(
    runs: dict[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the best time of each; they run in turn, so that a slow phase affects all of them."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            begin = clock()
            run()
            best[name] = min(best[name], clock() - begin)
    return best
