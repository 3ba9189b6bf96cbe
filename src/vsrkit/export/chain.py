"""How step functions are chained along a shot: which values each takes, and in which order.

A value is a name and a frame, as `frame[t]` or `backward[t+1]`. Some are not computed:

    frame[t]   the frames of the segment; outside of it the nearest one, or a mirrored one
    exists[t]  1 inside of the segment and 0 outside, (1, 1, 1, 1)
    any value  outside of the segment, or where its step did not run: zeros

`output[t]` is the result. This module is the format of the JSON file beside the step functions, and
a runner of it, which needs numpy only.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
RunStep: TypeAlias = Callable[[str, Mapping[str, Array]], Mapping[str, Array]]
VALUE = re.compile(r"(\w+)\[t([+-]\d+)?\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A step function, called once per frame.

    step: its name
    inputs: names of its inputs -> values
    outputs: names of its outputs -> values
    order: of the frames: `forward` or `backward` in time
    pairs: not called for the last frame, because it takes the next one
    """

    step: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    order: Literal["forward", "backward"] = "forward"
    pairs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The shape of a computed value, for the zeros that stand for missing ones.

    channels: of (1, channels, scale * H, scale * W)
    scale: its size relative to the frames
    """

    channels: int
    scale: float = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """All calls in the order in which they run; each runs for all frames before the next one.

    outside: which frame stands for one outside of the segment: `nearest`, or `mirrored` (frame 1
        for frame -1)
    """

    calls: tuple[Call, ...]
    values: Mapping[str, Value]
    outside: Literal["nearest", "mirrored"] = "nearest"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Chain":
        """The chain of a JSON file that `vsrkit export` wrote."""
        return cls(
            calls=tuple(Call(**call) for call in content["calls"]),
            values={name: Value(**value) for name, value in content["values"].items()},
            outside=content["outside"],
        )


def run_chain(chain: Chain, run: RunStep, frames: Sequence[Array]) -> list[Array]:
    """The results (1, 3, sH, sW) of all frames of a segment.

    chain: from the JSON file
    run: runs a step function, (name of the step, inputs by name) -> outputs by name
    frames: (1, 3, H, W) each
    """
    known: dict[tuple[str, int], Array] = {}
    for call in chain.calls:
        numbers = range(len(frames) - call.pairs)
        for t in numbers if call.order == "forward" else reversed(numbers):
            inputs = {
                name: read(chain, known, value, t, frames) for name, value in call.inputs.items()
            }
            outputs = run(call.step, inputs)
            for name, value in call.outputs.items():
                known[locate(value, t)] = outputs[name]
    return [known["output", t] for t in range(len(frames))]


def read(
    chain: Chain,
    known: Mapping[tuple[str, int], Array],
    value: str,
    t: int,
    frames: Sequence[Array],
) -> Array:
    """The value for frame t, or what stands for it."""
    name, at = locate(value, t)
    last = len(frames) - 1
    if name == "exists":
        return np.full((1, 1, 1, 1), 0 <= at <= last, np.float32)
    if name == "frame":
        if chain.outside == "mirrored":
            at = -at if at < 0 else 2 * last - at if at > last else at
        return frames[min(max(at, 0), last)]
    if (name, at) in known:
        return known[name, at]
    shape = chain.values[name]
    height, width = (round(side * shape.scale) for side in frames[0].shape[-2:])
    return np.zeros((1, shape.channels, height, width), np.float32)


def locate(value: str, t: int) -> tuple[str, int]:
    """The name of a value and its frame: `backward[t+1]` for frame 3 is ("backward", 4)."""
    found = VALUE.fullmatch(value)
    if found is None:
        raise ValueError(f"{value!r} is not a value such as frame[t] or backward[t+1]")
    return found[1], t + int(found[2] or 0)
