"""Check and pad clips to sizes and lengths that a model accepts."""

import torch
from torch import Tensor

from vsrkit.errors import VsrkitError
from vsrkit.models.layers.blocks import pad_to
from vsrkit.models.spec import Spec


def check_size(clip: Tensor, spec: Spec) -> None:
    """Raise an error unless frames (..., H, W) have a size that the model accepts."""
    height, width = clip.shape[-2:]
    if min(height, width) < spec.minimum:
        raise VsrkitError(
            f"frames must be at least {spec.minimum}x{spec.minimum}, got {height}x{width}; "
            "upscale_frames pads smaller ones"
        )
    if height % spec.multiple or width % spec.multiple:
        raise VsrkitError(
            f"height and width must be multiples of {spec.multiple}, got {height}x{width}; "
            "upscale_frames pads others"
        )


def padded_size(height: int, width: int, spec: Spec) -> tuple[int, int]:
    """The smallest size that the model accepts for frames of this size."""
    least, multiple = spec.tile or spec.minimum, spec.multiple
    height, width = (-(-max(side, least) // multiple) * multiple for side in (height, width))
    return height, width


def pad_clip(clip: Tensor, frames: int) -> Tensor:
    """Repeat the last frame of (T, 3, H, W) until there are at least `frames`."""
    missing = max(0, frames - clip.shape[0])
    return torch.cat([clip, clip[-1:].expand(missing, -1, -1, -1)]) if missing else clip


def pad_frames(frames: Tensor, height: int, width: int, spec: Spec) -> Tensor:
    """Pad the right and the bottom of (T, 3, H, W) in the way that the model declares."""
    if spec.extends_by == "mirror":
        return mirror_to(frames, height, width, repeat_edge=True)
    return pad_to(frames, height, width)


def mirror_to(x: Tensor, height: int, width: int, *, repeat_edge: bool) -> Tensor:
    """Mirror the right and the bottom of (..., H, W) until it has the given size; any size works.

    repeat_edge: whether the edge itself is mirrored (a b c | c b) or not (a b c | b a)
    """
    for dim, size in ((-2, height), (-1, width)):
        length = x.shape[dim]
        if size > length:
            end = 2 * length - (1 if repeat_edge else 2)
            places = torch.arange(size, device=x.device) % max(1, end + repeat_edge)
            x = x.index_select(dim, torch.minimum(places, end - places))
    return x
