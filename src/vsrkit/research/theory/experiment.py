"""What `vsrkit theory learn` does: curves, a run that the bound covers, and Lemma 2's event."""

from collections.abc import Sequence
from pathlib import Path

from vsrkit.research.theory.bounds import Descent, run_below, smallest_width, theorem2, useful_width
from vsrkit.research.theory.gradient import OnProgress
from vsrkit.research.theory.learn import LAYERS, Curve, Layer, descend, usual_run
from vsrkit.research.theory.patterns import cells
from vsrkit.research.theory.report import write_learning, write_separability
from vsrkit.research.theory.separable import measure_separability

DELTAS = (0.5, 0.1, 0.01)
BOUND_K = 2  # larger patterns need millions of steps before Theorem 2 says anything


def learn_patterns(
    ns: Sequence[int],
    ks: Sequence[int],
    folder: Path,
    *,
    delta: float = 0.1,
    seeds: int = 3,
    steps: int | None = None,
    faster: float = 1.0,
    draws: int = 2000,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> list[str]:
    """Train, draw, write; the result in a few lines."""
    runs = [
        usual_run(n, k, smallest_width(k, delta), steps=steps, faster=faster)
        for n, k in cells(ns, ks)
    ]
    covered = run_below(max(min(ns), BOUND_K + 1), BOUND_K)
    jobs = [(layer, run) for run in runs for layer in LAYERS]
    total = (len(jobs) + 1) * seeds
    curves: list[Curve] = []

    def train(layer: Layer, run: Descent) -> list[Curve]:
        found = []
        for number in range(seeds):
            if on_progress:
                on_progress(f"n = {run.n}, k = {run.k}, {layer}", len(curves) + number, total)
            found.append(descend(layer, run, seed=seed + number))
        return found

    for layer, run in jobs:
        curves += train(layer, run)
    bound = train("convolutional", covered)
    lemma = [
        measure_separability(k, d, draws=draws, seed=seed)
        for d in sorted({delta, *DELTAS})
        for k in ks
    ]
    files = [
        *write_learning(curves, folder, "learn", "Learning the product of k bits: loss by step"),
        *write_learning(bound, folder, "bound", "A run that Theorem 2 covers"),
        *write_separability(lemma, folder),
    ]
    lines = [_last_losses(run, curves) for run in runs]
    lines.append(
        f"Theorem 2 says something (a bound below 1) from q = {useful_width(covered.n, BOUND_K):,} "
        f"on for n = {covered.n}, k = {BOUND_K}; measured with q = {covered.q:,} over "
        f"{covered.steps:,} steps: mean loss {max(c.losses.mean() for c in bound):.3f}, "
        f"bound {theorem2(covered):.3f}"
    )
    least = min(lemma, key=lambda s: s.frequency - s.promised)
    lines.append(
        f"Lemma 2's event: nearest to its promise at k = {least.k}, delta = {least.delta:g}: "
        f"{least.frequency:.4f} of the draws, promised {least.promised:.4f}"
    )
    return [*lines, *map(str, files)]


def _last_losses(run: Descent, curves: Sequence[Curve]) -> str:
    parts = []
    for layer in LAYERS:
        last = [c.losses[-1] for c in curves if c.run == run and c.layer == layer]
        parts.append(f"{layer} {sum(last) / len(last):.3f}")
    return f"n = {run.n}, k = {run.k}, {run.steps} steps, last loss: {'; '.join(parts)}"
