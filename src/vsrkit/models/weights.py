"""Read weight files safely, write vsrkit's own, and copy tensors into a model."""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from vsrkit.errors import WeightsError
from vsrkit.hardware.files import temporary_path

# Keys under which public files store their tensors, most preferred first.
CONTAINERS = (
    "params_ema", "params", "state_dict", "model_state_dict", "model", "net", "net_g", "generator",
)  # fmt: skip
WRAPPERS = ("module.", "_orig_mod.")  # of data-parallel training and of `torch.compile`
# The network in files of mmediting and mmagic, beside discriminators, losses and data means, most
# preferred first: these frameworks test with the average of the weights where there is one.
GENERATORS = ("generator_ema.", "generator.")
# Tensors that some training frameworks store beside the network: counters, data means, losses.
BOOKKEEPING = re.compile(
    r"(module\.)?((generator(_ema)?\.)?(step_counter|steps|n_averaged)$"
    r"|data_preprocessor\.|pixel_loss\.)"
)

# Buffers that are the same in every file of a network; some files leave them out.
CONSTANTS = ("mean", "std")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors by name, and the metadata of a vsrkit file (empty for other files)."""

    tensors: dict[str, Tensor]
    about: dict[str, Any] = field(default_factory=dict)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a `.safetensors` or PyTorch file without running code from it."""
    if not path.is_file():
        raise WeightsError(f"{path} is not a file; give a model's name or a weight file")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    return _read_pickle(path)


def _read_safetensors(path: Path) -> Checkpoint:
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("vsrkit", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not isinstance(about, dict) or not isinstance(about.get("config", {}), dict):
            raise ValueError("its metadata are no JSON object")
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise WeightsError(
            f"{path} is not a complete safetensors file ({error}); fetch or save it again"
        ) from error
    if not tensors:
        raise WeightsError(f"{path} contains no tensors; expected the weights of a model")
    return Checkpoint(strip_prefix(tensors), about)


def _read_pickle(path: Path) -> Checkpoint:
    try:
        with warnings.catch_warnings():  # about old pickle protocols
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise any exception
        raise WeightsError(
            f"{path} cannot be read as a PyTorch weight file ({_reason(error)}); "
            "fetch it again, or convert it to safetensors"
        ) from error
    return Checkpoint(strip_prefix(_find_tensors(content, path)))


def _reason(error: Exception) -> str:
    """PyTorch's message without its advice to load with `weights_only=False`."""
    lines = [s for s in str(error).splitlines() if s.strip() and "weights_only" not in s]
    return lines[0].strip()[:120] if lines else type(error).__name__


def _find_tensors(content: Any, path: Path) -> dict[str, Tensor]:
    if isinstance(content, Mapping):
        for name in CONTAINERS:
            if isinstance(content.get(name), Mapping):
                return _find_tensors(content[name], path)
        tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)}
        if tensors:
            return tensors
    raise WeightsError(
        f"{path} is not a model: it contains a {type(content).__name__} without tensors"
    )


def strip_prefix(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the network, without a prefix that all of their names have.

    Such as `module.` of data-parallel training and `generator.` of mmediting.
    """
    tensors = {name: value for name, value in tensors.items() if not BOOKKEEPING.match(name)}
    for prefix in (*WRAPPERS, *GENERATORS, *WRAPPERS, "netG."):
        named = {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
        if named and (len(named) == len(tensors) or prefix in GENERATORS):
            tensors = named
    return tensors


def write_checkpoint(
    path: Path, model: nn.Module, about: Mapping[str, Any], *, half: bool = False
) -> None:
    """Write a safetensors file atomically.

    model: its state dict is stored
    about: metadata, stored as JSON in the header
    half: store floating-point tensors in half precision; a loaded model still runs in float32
    """
    tensors = {
        name: (value.half() if half and value.is_floating_point() else value)
        .detach()
        .cpu()
        .contiguous()
        for name, value in model.state_dict().items()
    }
    metadata = {"format": "pt", "vsrkit": json.dumps(dict(about))}
    try:
        with temporary_path(path) as temporary:
            save_file(tensors, temporary, metadata=metadata)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"cannot write {path} ({error}); no file was written") from error


def fill(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    source: str,
    public_name: Callable[[str], str] = str,
) -> None:
    """Copy `tensors` into `model`; names and shapes must match one to one.

    Only constant buffers (CONSTANTS) may be missing; those of the model are kept.

    source: where the tensors come from, for error messages
    public_name: vsrkit's tensor name -> the name in `tensors`
    """
    own = {public_name(name): value for name, value in model.state_dict().items()}
    wanted = {n: v for n, v in own.items() if n in tensors or n.split(".")[-1] not in CONSTANTS}
    for name, value in wanted.items():
        found = tensors.get(name)
        if found is None:
            raise WeightsError(f"{source} has no tensor {name!r}, of shape {tuple(value.shape)}")
        if found.shape != value.shape:
            raise WeightsError(
                f"{source}: {name!r} has shape {tuple(found.shape)}, "
                f"expected {tuple(value.shape)}; it belongs to another model"
            )
    for name in tensors:
        if name not in wanted:
            raise WeightsError(f"{source} contains {name!r}, which this model does not have")
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(tensors[name])


def weights_digest(tensors: Mapping[str, Tensor], *, prefix: str = "", size: int = 8) -> str:
    """Hex digest of the names and values of all tensors, in their order.

    prefix: hashed first, for example the model's config
    size: in bytes; the digest has twice as many characters

    Manifests and caches store these digests: the bytes that are hashed must not change.
    """
    digest = hashlib.blake2b(prefix.encode(), digest_size=size)
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()


def model_digest(model: nn.Module) -> str:
    """Hex digest of a model's class, config and weights."""
    prefix = f"{type(model).__name__} {getattr(model, 'config', None)}"
    return weights_digest(model.state_dict(), prefix=prefix)


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def count_matching(tensors: Mapping[str, Tensor], pattern: str) -> int:
    """The number of tensors whose name matches a pattern, such as the blocks of a network."""
    return sum(bool(re.fullmatch(pattern, name)) for name in tensors)


Rules: TypeAlias = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]


def rename(tensors: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    """Rename all tensors by applying every rule (pattern, replacement) in order."""
    return {apply_rules(name, rules): value for name, value in tensors.items()}


def apply_rules(name: str, rules: Rules) -> str:
    """Apply every rule (pattern, replacement) to a name, in order."""
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name
