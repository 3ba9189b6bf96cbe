"""Which number type and memory layout run a model fastest here: measured, never assumed.

What bfloat16 is worth differs by a factor of a hundred between processors, and PyTorch does not
tell: it reports bfloat16 as supported where it is emulated, and where its instructions end the
process (virtual machines that announce AMX and do not have it). So it is first tried in a child.
"""

import json
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.cache import cache_directory
from vsrkit.hardware.files import write_atomically
from vsrkit.hardware.threads import sharing_cores

PrecisionName: TypeAlias = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Precision:
    """A number type and a memory layout for convolutions."""

    dtype: Literal["float32", "bfloat16"]
    channels_last: bool

    def __str__(self) -> str:
        return f"{self.dtype} {'channels-last' if self.channels_last else 'channels-first'}"


# bfloat16 channels-first is left out: no processor was found where it beats channels-last.
CANDIDATES = (
    Precision("float32", False),
    Precision("float32", True),
    Precision("bfloat16", True),
)


@dataclass(frozen=True, slots=True)
class Convolution:
    """The shape of a convolution layer."""

    inputs: int
    outputs: int
    kernel: int
    groups: int


def resolve_precision(name: PrecisionName, model: nn.Module, device: str = "cpu") -> Precision:
    """The precision called `name` for this model on this device; `auto` measures (once)."""
    convolution = commonest_convolution(model)
    if convolution is None:
        return Precision("float32", False)
    candidates = [c for c in CANDIDATES if name in ("auto", c.dtype)]
    speeds = measured_speeds(convolution, torch.device(device))
    best = max(candidates, key=lambda c: speeds[c])
    if speeds[best] == 0:
        raise VsrkitError(
            f"{name} is wanted, but a process that tried it on this processor died; "
            "use float32 or auto"
        )
    return best


@contextmanager
def running_in(precision: Precision, device: str) -> Iterator[None]:
    """Run models inside without gradients, in the given number type, on all cores.

    Autocast, not `model.bfloat16()`: it keeps flows and warps in float32.
    """
    with (
        sharing_cores(allowed=torch.device(device).type == "cpu"),
        torch.inference_mode(),
        torch.autocast(
            torch.device(device).type, torch.bfloat16, enabled=precision.dtype == "bfloat16"
        ),
    ):
        yield


def lay_out(model: nn.Module, precision: Precision) -> None:
    """Store the model's weights in the layout of `precision` (in place)."""
    layout = torch.channels_last if precision.channels_last else torch.contiguous_format
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def commonest_convolution(model: nn.Module) -> Convolution | None:
    """The layer shape that holds most of the model's convolution weights."""
    sizes: Counter[Convolution] = Counter()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            shape = Convolution(
                layer.in_channels, layer.out_channels, layer.kernel_size[0], layer.groups
            )
            sizes[shape] += layer.weight.numel()
    return sizes.most_common(1)[0][0] if sizes else None


def measured_speeds(convolution: Convolution, device: torch.device) -> dict[Precision, float]:
    """GFLOP/s of each candidate, 0 for what cannot run.

    Kept in the user's cache directory, by processor and version.
    """
    path = cache_directory() / "speeds.json"
    machine = f"{_processor(device)}|torch {torch.__version__}"
    shape = json.dumps(asdict(convolution))
    trial, key = f"{machine}|bfloat16", f"{machine}|{torch.get_num_threads()} threads|{shape}"
    known = _read_json(path)
    if key not in known:
        if trial not in known:
            known[trial] = [float(device.type != "cpu" or bfloat16_survives())]
        known[key] = [
            0.0 if c.dtype == "bfloat16" and not known[trial][0] else _time(convolution, c, device)
            for c in CANDIDATES
        ]
        # Others may have measured meanwhile: what they wrote is kept.
        _write_json(path, known | _read_json(path) | {key: known[key]})
    return dict(zip(CANDIDATES, known[key], strict=True))


BFLOAT16_TRIAL = """
import torch
x = torch.rand(1, 64, 64, 64).bfloat16().contiguous(memory_format=torch.channels_last)
layer = torch.nn.Conv2d(64, 64, 3).bfloat16()
layer(x).sum().backward()
tokens = x[0].flatten(1)
torch.nn.functional.scaled_dot_product_attention(*[(tokens @ tokens.T)[None, None]] * 3)
"""


def bfloat16_survives() -> bool:
    """Whether a process lives through convolutions, products and attention in bfloat16."""
    command = [sys.executable, "-c", BFLOAT16_TRIAL]
    try:
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _time(convolution: Convolution, precision: Precision, device: torch.device) -> float:
    """Best GFLOP/s of a few runs on 96x96 pixels, a tenth of a second at most after the first."""
    side = 96
    dtype = getattr(torch, precision.dtype)
    layout = torch.channels_last if precision.channels_last else torch.contiguous_format
    layer = nn.Conv2d(
        convolution.inputs,
        convolution.outputs,
        convolution.kernel,
        padding=convolution.kernel // 2,
        groups=convolution.groups,
    )
    layer = layer.to(device, dtype)
    lay_out(layer, precision)
    x = torch.rand(1, convolution.inputs, side, side, device=device, dtype=dtype)
    x = x.contiguous(memory_format=layout)
    flop = 2 * side * side * layer.weight.numel()
    best = 0.0
    begin = time.perf_counter()
    with torch.inference_mode():
        for run in range(20):
            start = time.perf_counter()
            layer(x)
            _wait(x)
            end = time.perf_counter()
            if run > 0 or end - begin > 0.1:  # the first call prepares; if it is slow, it is slow
                best = max(best, flop / (end - start) / 1e9)
            if end - begin > 0.1 and best > 0:
                break
    return best


def _wait(x: Tensor) -> None:
    """Let an asynchronous device finish."""
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
    elif x.device.type == "mps":
        torch.mps.synchronize()


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    flags = ""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        info = ""
    name = next((x.split(":")[1].strip() for x in info.splitlines() if "model name" in x), "")
    flags = " ".join(x for x in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if x in info)
    return f"{device.type} {name or platform.processor() or platform.machine()} {flags}"


def _read_json(path: Path) -> dict[str, list[float]]:
    """What was measured before; a missing or damaged file only means to measure again."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_json(path: Path, content: dict[str, list[float]]) -> None:
    with suppress(OSError):  # a full disk or a read-only home: measure again next time
        write_atomically(path, json.dumps(content, indent=1), shared=True)
