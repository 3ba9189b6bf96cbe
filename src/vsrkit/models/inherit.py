"""A preset that starts from whole blocks of a trained BasicVSR (`train.narrow` takes parts)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.layers.flow import spynet_basicsr_name
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.weights import fill


def inherit(
    config: SmallConfig,
    basicvsr: Mapping[str, Tensor],
    *,
    backward_blocks: Sequence[int],
    forward_blocks: Sequence[int],
) -> VSRTSmall:
    """A preset that starts from a trained BasicVSR (public tensor names).

    Takes the first convolution and the named residual blocks of each trunk and the fusion; with
    `tail="two-stage"` the tail, with `flow="spynet"` the flow network. Everything else is fresh,
    and what is fresh starts as no change: with all blocks, the original tail and flow and no head
    blocks the result is BasicVSR itself. Blocks are taken whole, whatever widths the config has
    (`train.narrow` takes parts of them).
    """
    config = replace(config, backward_widths=(), forward_widths=())
    towers = {"backward": backward_blocks, "forward": forward_blocks}
    for direction, blocks in towers.items():
        if len(blocks) != config.tower_blocks:
            raise VsrkitError(
                f"{config.tower_blocks} {direction} blocks are wanted, {len(blocks)} were named"
            )
    model = VSRTSmall(config)
    for direction, blocks in towers.items():
        first, _, own_blocks = getattr(model, f"{direction}_tower").main
        trunk = f"{direction}_trunk.main"
        _take(first, basicvsr, f"{trunk}.0.")
        for block, number in zip(own_blocks, blocks, strict=True):
            _take(block, basicvsr, f"{trunk}.2.{number}.")
    _take(model.fusion, basicvsr, "fusion.")
    if config.flow == "spynet":
        _take(model.flow, basicvsr, "spynet.", spynet_basicsr_name)
    if config.tail == "two-stage":
        tail = {
            name: value for name, value in basicvsr.items() if name.startswith(("upconv", "conv_"))
        }
        _take(model.tail, tail, "")
    return model


def _take(
    part: nn.Module,
    tensors: Mapping[str, Tensor],
    prefix: str,
    public_name: Callable[[str], str] = str,
) -> None:
    """Fill a part of the model with the tensors under `prefix`."""
    own = {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
    fill(part, own, source=f"BasicVSR's {prefix or 'tail'}", public_name=public_name)
