"""The zoo's goldens: weights that follow from names, and what the public code made of them."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vsrkit.models.zoo.listing import CountOnly

FOLDER = Path(__file__).parent
# Buffers with constant values, which the reference code and ours compute.
CONSTANT = (
    "mean",
    "std",
    "kernels",
    "relative_position_index",
    "position_bias",
    "window_idx_offset",
)
STEP = 3  # of the pixels of an output every third is kept, in both directions


@cache
def about() -> dict[str, Any]:
    """Gains, public names, parameter counts and gradients."""
    return json.loads((FOLDER / "zoo.json").read_text())


def golden(name: str) -> dict[str, Tensor]:
    """Input and (sampled) output of one golden."""
    return load_file(FOLDER / f"{name}.safetensors")


def sampled(frames: Tensor) -> Tensor:
    """The pixels of (..., H, W) that the goldens keep."""
    return frames[..., ::STEP, ::STEP]


def filled(name: str, model: nn.Module, public_name: Callable[[str], str] = str) -> nn.Module:
    """The model with the weights of a golden, ready to run."""
    gains = about()["gains"][name]
    own_flow = name in about()["own_flow"]
    with torch.no_grad():
        for key, value in model.state_dict().items():
            public = public_name(key)
            if public.split(".")[-1] in CONSTANT:
                continue
            if own_flow and public.startswith("spynet."):
                weight = tensor_for(
                    public.removeprefix("spynet."), value.shape, [("basic_module.", 1.25)]
                )
            else:
                weight = tensor_for(public, value.shape, gains)
            value.copy_(weight)
    return model.eval()


def tensor_for(name: str, shape: Iterable[int], gains: Iterable[tuple[str, float]] = ()) -> Tensor:
    """The tensor with this public name: noise seeded by the name, scaled by its role."""
    shape = tuple(shape)
    if name.endswith("num_batches_tracked"):
        return torch.zeros(shape, dtype=torch.int64)
    seed = zlib.crc32(name.encode()) & 0xFFFFFFFF
    noise = np.random.RandomState(seed).standard_normal(shape).astype(np.float32)
    f32 = np.float32
    if name.endswith("running_mean"):
        return torch.from_numpy(f32(0.1) * noise)
    if name.endswith("running_var"):
        return torch.from_numpy(f32(1) + f32(0.2) * np.abs(noise))
    if name.endswith("bias"):
        shift = next((g for p, g in gains if p.startswith("shift:") and p[6:] in name), 0.0)
        return torch.from_numpy(f32(shift) + f32(0.05) * noise)
    if len(shape) == 1:  # a slope of PReLU, or the scale of a normalisation
        centre, spread = (0.25, 0.05) if shape[0] == 1 else (1.0, 0.1)
        return torch.from_numpy(f32(centre) + f32(spread) * noise)
    gain = next((g for p, g in gains if p in name), 1.0)
    return torch.from_numpy(noise * f32(gain / np.sqrt(int(np.prod(shape[1:])))))


def names_digest(shapes: Mapping[str, Iterable[int]]) -> str:
    """A short hash of all tensor names and shapes of a model."""
    text = json.dumps({name: list(shape) for name, shape in sorted(shapes.items())})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def facts(
    build: Callable[[], nn.Module], public_name: Callable[[str], str] = str
) -> dict[str, Any]:
    """Parameters and public tensor names of a model, without room for its weights."""
    with torch.device("meta"), CountOnly():  # fills no weights
        model = build()
    shapes = {public_name(name): value.shape for name, value in model.state_dict().items()}
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "names": names_digest(shapes),
    }


def check_gradients(
    name: str, model: nn.Module, output: Tensor, public_name: Callable[[str], str] = str
) -> None:
    """Compare norm and first element of every parameter's gradient, for the goldens' loss.

    Sampling and ReLU have kinks: a rounding error on one side of such a place may turn up on the
    other, and changes single elements by more than it changes a norm. The flow network starts
    from no flow, where every place is such a kink, so it is held to less.
    """
    ((output - 0.5) ** 2 + 1e-12).sqrt().sum().backward()
    parameters = {public_name(key): p for key, p in model.named_parameters()}
    for key, (norm, first) in about()["gradients"][name]["params"].items():
        gradient = parameters[key].grad
        assert gradient is not None, key
        share = 2e-2 if key.startswith("spynet.") else 1e-3
        assert abs(gradient.norm().item() - norm) <= share * norm, key
        assert abs(gradient.flatten()[0].item() - first) <= share * (norm + 5 * abs(first)), key
