"""Recurrent states of a model as bytes, so that another process can continue from them."""

from collections.abc import Sequence
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

CHANNELS_LAST = "channels_last"  # ending of the names of states in this layout


def pack_states(states: Sequence[Any]) -> bytes:
    """The recurrent states of a model as bytes: a tensor or a tuple of tensors for each tile.

    Each keeps its memory layout, on which the rounding of the next frame depends.
    """
    tensors = {}
    for tile, state in enumerate(states):
        for place, tensor in enumerate([state] if isinstance(state, Tensor) else state):
            packed, name = tensor.detach().cpu(), f"{tile}.{place}"
            if packed.ndim == 4 and not packed.is_contiguous():
                packed, name = packed.permute(0, 2, 3, 1), f"{name}.{CHANNELS_LAST}"
            tensors[name] = packed.contiguous().clone()
    return save(tensors)


def unpack_states(content: bytes, like: Any, device: str) -> list[Any]:
    """States packed by `pack_states`; each gets the type of `like`, a state of the model."""
    tiles: dict[int, dict[int, Tensor]] = {}
    for name, packed in load(content).items():
        tile, place, *layout = name.split(".")
        tensor = packed.permute(0, 3, 1, 2) if layout else packed
        tiles.setdefault(int(tile), {})[int(place)] = tensor.to(device)
    if isinstance(like, Tensor):
        return [tiles[tile][0] for tile in sorted(tiles)]
    make = getattr(type(like), "_make", tuple)  # a named tuple or a plain one
    return [make(tiles[tile][place] for place in range(len(like))) for tile in sorted(tiles)]
