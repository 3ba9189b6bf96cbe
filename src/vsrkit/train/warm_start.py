"""Starting weights from any checkpoint, with a report of what was taken, and their layout."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.errors import WeightsError
from vsrkit.hardware.precision import Precision, set_memory_layout
from vsrkit.models.layers.flow import SPyNet, flow_networks, spynet_public_name, spynet_translate
from vsrkit.models.weights import read_checkpoint
from vsrkit.models.zoo import ARCHITECTURES, MODELS, Architecture, local_weights

log = logging.getLogger("vsrkit")

# What precedes the names of a SPyNet's own tensors in a file of a whole model.
_BEFORE_SPYNET = r"^(.+?\.)??(?=(basic_module|levels)\.\d+\.)|^(spynet\.|flow\.)+(?=(mean|std)$)"


@dataclass(frozen=True, slots=True)
class Taken:
    """Names of tensors: filled from the file, of another shape there, and not used of it."""

    filled: list[str]
    misfits: list[str]
    unused: list[str]

    def __str__(self) -> str:
        return (
            f"{len(self.filled)} tensors taken, {len(self.misfits)} of another shape, "
            f"{len(self.unused)} not used"
        )


def warm_start(model: nn.Module, source: str) -> Taken:
    """Fill what fits from a weight file or a model with weights; "part=FILE" fills only `part`."""
    part, equals, file = source.partition("=")
    if not equals:
        part, file = "", source
    try:
        target = model.get_submodule(part)
    except AttributeError as error:
        raise WeightsError(f"warm start {source!r}: the model has no part {part!r}") from error
    path = local_weights(file) if file in MODELS else Path(file)
    if path is None:
        raise WeightsError(f"warm start {source!r}: no weights of {file} are at hand; name a file")
    tensors = _named_as_ours(target, read_checkpoint(path).tensors)
    # A file of a whole model has the part's tensors under its name, one of a part alone has not.
    inside = {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(f"{part}.")}
    taken = take(target, inside or tensors)
    log.info("warm start from %s: %s", source, taken)
    for name in (taken.misfits + taken.unused)[:10]:
        log.info("  left out: %s", name)
    if not taken.filled:
        raise WeightsError(f"{file} has no tensor that fits; it belongs to another model")
    return taken


def _named_as_ours(target: nn.Module, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A public file's tensors under our names, if it is in one of the styles that we know.

    A flow network is found inside of any file: those of whole models call it by many names.
    """
    wanted = target.state_dict()
    public: Callable[[str], str]
    if isinstance(target, SPyNet):
        found = {
            re.sub(_BEFORE_SPYNET, "", name, count=1): value for name, value in tensors.items()
        }
        translated, public = spynet_translate(found), spynet_public_name
    elif architecture := _architecture_of(target):
        translated, public = architecture.translate(tensors), architecture.public_name
    else:
        return tensors
    ours = {public(name): name for name in wanted}
    renamed = {ours.get(name, name): value for name, value in translated.items()}
    return max(tensors, renamed, key=lambda each: len(each.keys() & wanted.keys()))


def _architecture_of(model: nn.Module) -> Architecture | None:
    config = getattr(model, "config", None)
    return next((a for a in ARCHITECTURES.values() if a.config is type(config)), None)


def lay_out_to_train(model: nn.Module, precision: Precision) -> None:
    """Store weights in the layout of `precision`, but for flow networks in float32.

    Where a flow points at the border of two pixels, its gradient jumps, and the roundings of
    another layout decide which of the two it meets. In the layout that PyTorch has by itself all
    gradients are those of plain training, and the time is that of a hundredth of the model.
    """
    set_memory_layout(model, precision)
    if precision.dtype == "float32":
        for part in flow_networks(model):
            set_memory_layout(part, Precision("float32", channels_last=False))


@torch.no_grad()
def take(model: nn.Module, tensors: Mapping[str, Tensor]) -> Taken:
    """Copy every tensor that has the model's name and shape for it."""
    wanted = model.state_dict()
    filled = [k for k, v in tensors.items() if k in wanted and wanted[k].shape == v.shape]
    for name in filled:
        wanted[name].copy_(tensors[name])
    misfits = [k for k in tensors if k in wanted and k not in filled]
    return Taken(filled, misfits, [k for k in tensors if k not in wanted])
