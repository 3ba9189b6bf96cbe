"""Upscale clips of VapourSynth: `vsrkit.vapoursynth.upscale`."""

from collections.abc import Collection
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

import vapoursynth as vs
from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import PrecisionName, resolve_device
from vsrkit.inference.engine import make_engine
from vsrkit.inference.random_access import RandomAccess, detected_cuts, listed_cuts
from vsrkit.models.zoo import load_model

__all__ = ["upscale"]

Node: TypeAlias = Any  # vs.VideoNode, whose module has no types for mypy
Frame: TypeAlias = Any  # vs.VideoFrame
CutSource: TypeAlias = Literal["detect", "props"] | Collection[int]


def upscale(
    clip: Node,
    model: str | nn.Module = "vsrt-s",
    *,
    cuts: CutSource = "detect",
    precision: PrecisionName = "auto",
    device: str = "auto",
    tile: int | None = None,
    bits: Literal[8, 16] | None = None,
    memory: float = 1.0,
) -> Node:
    """Upscale a clip by a model of the zoo.

    clip: vs.RGBS, vs.RGBH, vs.RGB24 or vs.RGB48 of constant size, full range
    model: as for `vsrkit.load_model`, or a loaded model
    cuts: where shots begin. `detect` finds them as `vsrkit upscale` does, `props` reads them from
        the frame property `_SceneChangePrev`; or the numbers of the frames. Fastest are numbers.
    precision, device, tile: as for `vsrkit upscale`
    bits: 8 or 16 for RGB24 or RGB48, rounded as in the files of `vsrkit upscale`; None for the
        clip's format. VapourSynth's own conversions, to floats or from them, change single values
        in the last bit: pass RGB24 or RGB48 for exactly the frames of `vsrkit upscale`.
    memory: gigabytes of upscaled frames that are kept for the next requests

    Frames have the same values in whatever order they are requested: those that
    `vsrkit.upscale_frames` returns for the same cuts. The first frame of a segment takes the time
    of the whole segment (20 frames for vsrt-s), the others none.
    """
    if not isinstance(clip, vs.VideoNode) or clip.format is None or not clip.width:
        raise VsrkitError("upscale takes a clip of constant format and size")
    if clip.format.id not in (vs.RGBS, vs.RGBH, vs.RGB24, vs.RGB48):
        raise VsrkitError(
            f"upscale takes RGBS, RGBH, RGB24 or RGB48, not {clip.format.name}; convert the clip "
            "first, such as clip.resize.Bicubic(format=vs.RGBS, matrix_in_s='709')"
        )
    network = load_model(model) if isinstance(model, str) else model
    engine = make_engine(network, precision=precision, device=resolve_device(device), tile=tile)

    if bits not in (None, 8, 16):
        raise VsrkitError(f"bits is 8, 16 or None, not {bits}")
    is_integer = clip.format.sample_type == vs.INTEGER
    largest = 2**clip.format.bits_per_sample - 1 if is_integer else 1
    bits = bits or (clip.format.bits_per_sample if is_integer else None)

    def read(number: int) -> Tensor:
        with clip.get_frame(number) as frame:
            planes = [np.asarray(frame[plane]).astype(np.float32) for plane in range(3)]
        return torch.from_numpy(np.stack(planes) / np.float32(largest))

    length = clip.num_frames
    if cuts == "detect":
        begins = detected_cuts(read, length)
    elif cuts == "props":
        begins = _cuts_of_properties(clip)
    elif isinstance(cuts, str):
        raise VsrkitError(f"cuts is 'detect', 'props' or numbers of frames, not {cuts!r}")
    else:
        begins = listed_cuts(cuts)
    frames = RandomAccess(engine, read, length, begins, memory=round(memory * (1 << 30)))
    scale = engine.spec.scale
    blank = clip.std.BlankClip(
        width=clip.width * scale,
        height=clip.height * scale,
        format={None: clip.format.id, 8: vs.RGB24, 16: vs.RGB48}[bits],
        keep=True,
    )

    def write(n: int, f: list[Frame]) -> Frame:
        sr = frames.frame(n)
        if bits:
            sr = sr.double().clamp(0, 1).mul(2**bits - 1).round()
        result = f[0].copy()
        for plane in range(3):
            np.copyto(np.asarray(result[plane]), sr[plane].numpy(), casting="unsafe")
        for name, value in f[1].props.items():
            result.props[name] = value
        return result

    return blank.std.ModifyFrame([blank, clip], write)


def _cuts_of_properties(clip: Node) -> Any:
    """`begins` of `random_access.Shots` by the property that scene detectors set."""

    def begins(start: int, stop: int) -> list[bool]:
        found = []
        for number in range(start, stop):
            with clip.get_frame(number) as frame:
                found.append(bool(frame.props.get("_SceneChangePrev", 0)))
        return found

    return begins
