"""Upscaled frames of a video in any order, with the same values as from beginning to end.

Shots are divided into segments at fixed positions (`models.spec.plan_piece`), so that a frame does
not depend on where playback began. Segments are kept until newer ones need the memory.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor

from vsrkit.inference.engine import Engine
from vsrkit.inference.shots import AHEAD, BEFORE, mark_cuts
from vsrkit.models.spec import Carried, Piece, frames_ahead, plan_piece

BLOCK = 24  # frames that are searched for cuts at once, and of a carried state's segment
STATES = 32  # carried states that are kept

ReadFrame: TypeAlias = Callable[[int], Tensor]  # (3, H, W) RGB by number


class Shots:
    """Where shots begin, found as far as it is needed.

    length: frames of the video
    begins: whether one of the frames from `start` up to `stop` begins a shot, one value each
    """

    def __init__(self, length: int, begins: Callable[[int, int], list[bool]]) -> None:
        self.length = length
        self._begins = begins
        self._known: dict[int, list[bool]] = {}  # by number of the block

    def start(self, number: int) -> int:
        """The first frame of the shot of a frame."""
        while number > 0 and not self._is_start(number):
            number -= 1
        return number

    def stop(self, number: int, limit: int) -> int:
        """The first frame after the shot of a frame; no frame from `limit` on is looked at."""
        limit = min(limit, self.length)
        number += 1
        while number < limit and not self._is_start(number):
            number += 1
        return min(number, limit)

    def _is_start(self, number: int) -> bool:
        block, place = divmod(number, BLOCK)
        if block not in self._known:
            first = block * BLOCK
            self._known[block] = self._begins(first, min(first + BLOCK, self.length))
        return self._known[block][place]


def listed_cuts(cuts: Collection[int]) -> Callable[[int, int], list[bool]]:
    """`begins` of `Shots` for given numbers of frames that begin a shot."""
    numbers = set(cuts)
    return lambda start, stop: [number in numbers for number in range(start, stop)]


def detected_cuts(read: ReadFrame, length: int) -> Callable[[int, int], list[bool]]:
    """`begins` of `Shots` by the detector of `vsrkit upscale`, with the same cuts."""

    def begins(start: int, stop: int) -> list[bool]:
        first, last = max(0, start - BEFORE - 1), min(length, stop + AHEAD)
        marked = [cut for _, cut in mark_cuts(map(read, range(first, last)))]
        return marked[start - first : stop - first]

    return begins


class RandomAccess:
    """Upscaled frames by number; safe to call from several threads.

    read: the frames of the video
    length: their number
    begins: as for `Shots`
    memory: bytes of upscaled frames that are kept, but always those of one segment
    """

    def __init__(
        self,
        engine: Engine,
        read: ReadFrame,
        length: int,
        begins: Callable[[int, int], list[bool]],
        *,
        memory: int = 1 << 30,
    ) -> None:
        self._engine, self._read, self._memory = engine, read, memory
        self._shots = Shots(length, begins)
        self._frames: OrderedDict[int, Tensor] = OrderedDict()  # least recently used first
        self._states: OrderedDict[int, Any] = OrderedDict()  # before the frame of that number
        self._lock = Lock()

    def frame(self, number: int) -> Tensor:
        """The upscaled frame of this number, (3, sH, sW)."""
        with self._lock:
            if number not in self._frames:
                self._add_segment(number)
            self._frames.move_to_end(number)
            return self._frames[number]

    def _add_segment(self, number: int) -> None:
        start = self._shots.start(number)
        if isinstance(self._engine.spec.context, Carried):
            new = self._carry_to(number, start)
        else:
            new = self._run_piece(number, start)
        size = next(iter(new.values())).nbytes
        kept = max(self._memory // size, len(new))
        self._frames.update(new)
        while len(self._frames) > kept:
            self._frames.popitem(last=False)

    def _run_piece(self, number: int, start: int) -> dict[int, Tensor]:
        """The frames of the segment of a frame, in the shot that begins at `start`."""
        context = self._engine.spec.context
        kept = len(plan_piece(0, self._shots.length, context).kept)
        first = (number - start) // kept * kept
        stop = self._shots.stop(number, start + first + frames_ahead(context, first))
        plan = plan_piece(first, stop - start, context)
        clip = torch.stack([self._read(start + frame) for frame in plan.frames])
        piece = Piece(clip, plan.keep, plan.begins_shot)
        numbers = (start + frame for frame in plan.kept)
        return dict(zip(numbers, map(torch.clone, self._engine.run(piece)), strict=True))

    def _carry_to(self, number: int, start: int) -> dict[int, Tensor]:
        """The frames of the block of a frame, from the nearest state that is kept before it."""
        context = self._engine.spec.context
        block = start + (number - start) // BLOCK * BLOCK
        known = (at for at in self._states if start < at <= block)
        at = max(known, default=start)
        states = self._states.get(at, [])
        results: dict[int, Tensor] = {}
        while at < block + BLOCK:
            stop = self._shots.stop(at, at + 2)
            plan = plan_piece(at - start, stop - start, context)
            clip = torch.stack([self._read(start + frame) for frame in plan.frames])
            sr, states = self._engine.step(Piece(clip, plan.keep, plan.begins_shot), states)
            if at >= block:
                results[at] = sr.clone()
            at += 1
            if stop == at:
                break
            if (at - start) % BLOCK == 0:
                self._keep_states(at, states)
        return results

    def _keep_states(self, number: int, states: Any) -> None:
        self._states[number] = states
        if len(self._states) > STATES:
            self._states.popitem(last=False)
