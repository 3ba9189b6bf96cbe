"""Choosing the device that runs a model."""

import torch

from vsrkit.errors import VsrkitError


def resolve_device(name: str) -> str:
    """Check that a device exists on this machine; `auto` picks CUDA, else MPS, else the CPU.

    name: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return "cuda" if cuda else "mps" if mps else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise VsrkitError(f"no device called {name!r}; choose auto, cpu, cuda, cuda:N or mps")
    if (device.type == "cuda" and not cuda) or (device.type == "mps" and not mps):
        raise VsrkitError(f"no {device.type.upper()} device is available; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise VsrkitError(f"there is no {name}; this machine has {count} CUDA devices, from cuda:0")
    return name
