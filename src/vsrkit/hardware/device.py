"""Choose the device, the number type and the memory layout for a model on this machine.

Number type and layout are measured. The speed of bfloat16 differs by a factor of a hundred between
processors, and PyTorch does not report it: it claims support where bfloat16 is emulated and where
its instructions crash the process (virtual machines that announce AMX without having it).
Therefore bfloat16 is tried in a child process first.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.files import cache_directory, write_atomically
from vsrkit.hardware.threads import allow_parallel

Int8Name: TypeAlias = Literal["int8", "int8-exact"]
FloatName: TypeAlias = Literal["auto", "float32", "bfloat16"]
PrecisionName: TypeAlias = Literal["auto", "float32", "bfloat16", "int8", "int8-exact"]
TrainingPrecisionName: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
HalfType: TypeAlias = Literal["bfloat16", "float16"]


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


@dataclass(frozen=True, slots=True)
class Precision:
    """A number type and a memory layout for convolutions.

    int8: how residual blocks and tails run in 8-bit integers, on a CPU: features stay in bytes
        between blocks (`int8`), or in float32 (`int8-exact`). The rest runs in `dtype`.
    """

    dtype: Literal["float32", "bfloat16", "float16"]
    channels_last: bool
    int8: Int8Name | None = None

    def __str__(self) -> str:
        layout = "channels-last" if self.channels_last else "channels-first"
        return f"{self.int8} beside {self.dtype}" if self.int8 else f"{self.dtype} {layout}"

    @property
    def name(self) -> str:
        """What `resolve_precision` takes to choose this one."""
        return self.int8 or self.dtype

    @property
    def floats(self) -> "Precision":
        """The same without int8."""
        return replace(self, int8=None)


# Without bfloat16 channels-first: channels-last was faster on every processor tested.
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


def resolve_precision(
    name: PrecisionName | TrainingPrecisionName,
    model: nn.Module,
    device: str = "cpu",
    candidates: Sequence[Precision] = CANDIDATES,
) -> Precision:
    """Choose the fastest precision for a model on a device.

    name: the number type, or `auto` for the fastest one. Only candidates of that type are measured;
        bfloat16 is never run for `float32`. `auto` chooses between floats; int8 needs a calibration
        (see `inference.calibration`), and the fastest floats for the rest of the model.
    model: its largest convolution is measured; a model without convolutions runs in float32.
    device: as `resolve_device` returns it.
    candidates: what to choose from.
    """
    if name == "int8" or name == "int8-exact":
        candidates = [c for c in candidates if c.channels_last]
        return replace(resolve_precision("auto", model, device, candidates), int8=name)
    convolution = largest_convolution(model)
    if convolution is None:
        return Precision("float32", False)
    candidates = [c for c in candidates if name in ("auto", c.dtype)]
    speeds = measure_speeds(convolution, torch.device(device), candidates)
    best = max(candidates, key=lambda c: speeds[c])
    if speeds[best] == 0:
        raise VsrkitError(
            f"{name} was requested, but crashes PyTorch on this processor; use float32 or auto"
        )
    return best


def resolve_training_precision(
    name: TrainingPrecisionName, model: nn.Module, device: str = "cpu"
) -> Precision:
    """As `resolve_precision`, for training, where float16 is possible, too.

    `auto` compares float32 with the 16-bit type of the device, see `half_type`.
    """
    half = name if name in ("bfloat16", "float16") else half_type(torch.device(device))
    floats = (Precision("float32", False), Precision("float32", True))
    return resolve_precision(name, model, device, (*floats, Precision(half, True)))


def half_type(device: torch.device) -> HalfType:
    """The 16-bit type that a device computes fast: bfloat16, float16 on older CUDA devices.

    bfloat16 needs compute capability 8.0 (Ampere). float16 overflows above 65,504, so that
    training scales the loss.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return "float16"
    return "bfloat16"


def autocast(precision: Precision, device: str) -> torch.autocast:
    """Run convolutions and products in the number type of `precision`; no effect for float32.

    Autocast instead of `model.bfloat16()`, because it keeps flows and warps in float32.
    """
    half = torch.float16 if precision.dtype == "float16" else torch.bfloat16
    return torch.autocast(torch.device(device).type, half, enabled=precision.dtype != "float32")


def device_title(device: str) -> str:
    """A device with the name of its hardware, for messages: `cuda:0 (NVIDIA A100-SXM4-40GB)`."""
    if torch.device(device).type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return device


@contextmanager
def inference_context(precision: Precision, device: str) -> Iterator[None]:
    """Run models without gradients, in the given number type, on all cores."""
    parallel = allow_parallel(enabled=torch.device(device).type == "cpu")
    with parallel, torch.inference_mode(), autocast(precision, device):
        yield


def set_memory_layout(model: nn.Module, precision: Precision) -> None:
    """Store the model's weights in the memory layout of `precision`, in place."""
    layout = torch.channels_last if precision.channels_last else torch.contiguous_format
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def largest_convolution(model: nn.Module) -> Convolution | None:
    """The layer shape that holds most of the model's convolution weights."""
    sizes: Counter[Convolution] = Counter()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            shape = Convolution(
                layer.in_channels, layer.out_channels, layer.kernel_size[0], layer.groups
            )
            sizes[shape] += layer.weight.numel()
    return sizes.most_common(1)[0][0] if sizes else None


def measure_speeds(
    convolution: Convolution, device: torch.device, candidates: Sequence[Precision] = CANDIDATES
) -> dict[Precision, float]:
    """GFLOP/s of each candidate, 0 for one that crashes.

    Results are stored in the cache folder, by processor, PyTorch version, threads and layer shape.
    """
    path = cache_directory() / "speeds.json"
    machine = f"{describe_processor(device)}|torch {torch.__version__}"
    shape = json.dumps(asdict(convolution))
    # Earlier versions store lists in the same file, under keys without "by type".
    key = f"{machine}|{torch.get_num_threads()} threads|{shape}|by type"
    trial, known = f"{machine}|bfloat16", _read_json(path)
    speeds: dict[str, float] = known.get(key, {})
    missing = [c for c in candidates if str(c) not in speeds]
    for candidate in missing:
        if candidate.dtype == "bfloat16" and trial not in known:
            known[trial] = [float(device.type != "cpu" or bfloat16_works())]
        crashes = candidate.dtype == "bfloat16" and not known[trial][0]
        speeds[str(candidate)] = 0.0 if crashes else _time(convolution, candidate, device)
    if missing:  # another process may have written the file in the meantime: keep its results
        _write_json(path, known | _read_json(path) | {key: speeds})
    return {c: speeds[str(c)] for c in candidates}


def measured_once(name: str, measure: Callable[[], float]) -> float:
    """A measurement that is stored in the cache folder, by processor, PyTorch version and threads.

    So that two runs of a job make the same choice.
    """
    path = cache_directory() / "speeds.json"
    machine = f"{describe_processor(torch.device('cpu'))}|torch {torch.__version__}"
    key = f"{machine}|{torch.get_num_threads()} threads|{name}"
    known = _read_json(path)
    if key not in known:
        known |= {key: measure()}
        _write_json(path, known | _read_json(path))
    return float(known[key])


BFLOAT16_TRIAL = """
import torch
x = torch.rand(1, 64, 64, 64).bfloat16().contiguous(memory_format=torch.channels_last)
layer = torch.nn.Conv2d(64, 64, 3).bfloat16()
layer(x).sum().backward()
tokens = x[0].flatten(1)
torch.nn.functional.scaled_dot_product_attention(*[(tokens @ tokens.T)[None, None]] * 3)
"""


def bfloat16_works() -> bool:
    """Whether convolution, matrix product and attention run in bfloat16 in a child process."""
    command = [sys.executable, "-c", BFLOAT16_TRIAL]
    try:
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _time(convolution: Convolution, precision: Precision, device: torch.device) -> float:
    """Best GFLOP/s of up to 20 runs on 96x96 pixels within 0.1 s, not counting the first run."""
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
    set_memory_layout(layer, precision)
    x = torch.rand(1, convolution.inputs, side, side, device=device, dtype=dtype)
    x = x.contiguous(memory_format=layout)
    flop = 2 * side * side * layer.weight.numel()
    best = 0.0
    begin = time.perf_counter()
    with torch.inference_mode():
        for run in range(20):
            start = time.perf_counter()
            layer(x)
            _synchronize(x)
            end = time.perf_counter()
            if run > 0 or end - begin > 0.1:  # the first run includes setup; count it if it is slow
                best = max(best, flop / (end - start) / 1e9)
            if end - begin > 0.1 and best > 0:
                break
    return best


def _synchronize(x: Tensor) -> None:
    """Wait until the tensor's device has finished all queued work."""
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
    elif x.device.type == "mps":
        torch.mps.synchronize()


def describe_processor(device: torch.device) -> str:
    """The name of a device and, for a CPU, the instruction sets that affect the speed."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = _processor_info()
    name = next((x.split(":")[1].strip() for x in info.splitlines() if "model name" in x), "")
    flags = " ".join(x for x in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if x in info)
    # A limit set by the user hides instructions, and measurements without it do not hold.
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    title = f"{device.type} {name or platform.processor() or platform.machine()} {flags}"
    return f"{title} up to {limit}" if limit else title


@lru_cache(maxsize=1)
def processor_flags() -> frozenset[str]:
    """The instruction sets of the processor; empty if the system does not list them."""
    info = _processor_info().splitlines()
    line = next((line for line in info if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def has_avx512() -> bool:
    """Whether the processor has AVX-512, even if PyTorch is set not to use it."""
    flags = processor_flags()
    return "avx512f" in flags if flags else torch.backends.cpu.get_cpu_capability() == "AVX512"


def _processor_info() -> str:
    """The description of the processor by Linux; empty on other systems."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def _read_json(path: Path) -> dict[str, Any]:
    """Earlier measurements; none if the file is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with suppress(OSError):  # full disk or read-only home: measure again next time
        write_atomically(path, json.dumps(content, indent=1), shared=True)
