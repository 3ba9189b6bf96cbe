"""How many clips a forward pass takes: from the size of a step and the memory of the device."""

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from vsrkit.hardware.device import Precision, autocast
from vsrkit.hardware.memory import format_size, free_memory
from vsrkit.train.compose_loss import compose_loss, set_loss_layout
from vsrkit.train.config import TrainConfig
from vsrkit.train.losses import mirror_in_time
from vsrkit.train.processes import Processes
from vsrkit.train.settings import ConfigError

log = logging.getLogger("vsrkit")

# Peak memory of a clip relative to what the backward pass keeps of it: gradients of activations and
# buffers of convolutions come on top. Measured on a CPU: 1.3 (BasicVSR) to 1.8 (VSR-Transformer).
PEAK = 1.8
# Gradients, their copies that are exchanged between processes, and two moments of the optimizer.
COPIES = 4
RECOMPUTED = 0.5  # share that `activation_checkpointing` keeps; measured: a third
USABLE = 0.9  # share of the free memory


def share_batch(
    config: TrainConfig, processes: Processes, model: nn.Module, precision: Precision
) -> tuple[int, int]:
    """`batch_size` and `accumulate` that make up the `total_batch_size` of a run.

    Args:
        config: settings of the run.
        processes: of the run.
        model: in the layout of `precision`, on the device of this process; used for "auto".
        precision: number type of the forward pass.
    """
    share, rest = divmod(config.total_batch_size, processes.count)
    if rest:
        raise ConfigError(
            f"total_batch_size = {config.total_batch_size} cannot be shared by "
            f"{processes.count} processes; use a multiple of {processes.count}"
        )
    if config.batch_size:
        accumulate, rest = divmod(share, config.batch_size)
        if rest:
            raise ConfigError(
                f"total_batch_size = {config.total_batch_size} is {share} clips for each process, "
                f"which is not a multiple of batch_size = {config.batch_size}"
            )
        return config.batch_size, accumulate
    clip = clip_bytes(model, config, precision, processes.device)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    free = free_memory(processes.device)
    if torch.device(processes.device).type == "cpu":  # shared by the processes of this machine
        free //= int(os.environ.get("LOCAL_WORLD_SIZE", processes.count))
    size = largest_batch(share, clip=clip, fixed=COPIES * weights, free=int(USABLE * free))
    if clip + COPIES * weights > USABLE * free:
        log.warning(
            "one clip needs about %s, but only %s are free; set activation_checkpointing=true or "
            "a smaller crop",
            format_size(clip + COPIES * weights),
            format_size(free),
        )
    return size, share // size


def largest_batch(share: int, *, clip: int, fixed: int, free: int) -> int:
    """The largest divisor of `share` whose clips fit into `free` bytes; at least 1.

    Args:
        share: clips of each step of a process.
        clip: bytes of each clip of a forward pass.
        fixed: bytes that do not depend on the number of clips.
        free: bytes.
    """
    fitting = [n for n in range(1, share + 1) if share % n == 0 and fixed + n * clip <= free]
    return max(fitting, default=1)


def clip_bytes(model: nn.Module, config: TrainConfig, precision: Precision, device: str) -> int:
    """Estimate the memory of training on one clip, by one forward pass of the model and its loss.

    Without what a teacher takes.
    """
    lr = torch.rand(1, config.frames, 3, config.crop, config.crop, device=device)
    if config.losses.pixels_only:
        seen = mirror_in_time(lr) if config.mirrored else lr
        kept = kept_bytes(model, lambda: model(seen), autocast(precision, device))
    else:
        scale: int = model.spec.scale  # type: ignore[union-attr, assignment]
        loss = compose_loss(model, config, None, scale)
        set_loss_layout(loss, model, precision, device)
        target = lr.repeat_interleave(scale, -1).repeat_interleave(scale, -2)
        total = lambda: torch.stack(list(loss(lr, target).values())).sum()  # noqa: E731
        kept = kept_bytes(loss, total, autocast(precision, device))
    return int(kept * PEAK * (RECOMPUTED if config.activation_checkpointing else 1))


def kept_bytes(
    model: nn.Module, forward: Callable[[], Tensor], context: AbstractContextManager[object]
) -> int:
    """Bytes that a forward pass keeps for the backward pass, without the weights."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), context:
        output = forward()  # holds the kept tensors, so that no address is used twice
    del output
    return sum(size for address, size in sizes.items() if address not in weights)
