"""Tensor names and configuration of the authors' weight files of the VSR-Transformer."""

import re
from collections.abc import Mapping

from torch import Tensor

from vsrkit.models.layers.flow import spynet_public_name, spynet_translate
from vsrkit.models.vsrt import VSRTConfig
from vsrkit.models.weights import count_matching

_PUBLIC_NAMES = (
    (r"^encoder\.main\.0\.", "conv_first."),
    (r"^encoder\.main\.2\.", "feature_extraction."),
    (r"^flow\.", "spynet.spynet."),
    (r"^layers\.(\d+)\.attention_norm\.", r"transformer.layers.\1.0.fn.norm."),
    (r"^layers\.(\d+)\.attention\.out\.", r"transformer.layers.\1.0.fn.fn.conv."),
    (r"^layers\.(\d+)\.attention\.", r"transformer.layers.\1.0.fn.fn."),
    (r"^layers\.(\d+)\.feed_forward_norm\.", r"transformer.layers.\1.1.fn.norm."),
    (
        r"^layers\.(\d+)\.feed_forward\.from_next\.",
        r"transformer.layers.\1.1.fn.fn.backward_resblocks.",
    ),
    (
        r"^layers\.(\d+)\.feed_forward\.from_prev\.",
        r"transformer.layers.\1.1.fn.fn.forward_resblocks.",
    ),
    (r"^layers\.(\d+)\.feed_forward\.", r"transformer.layers.\1.1.fn.fn."),
    (r"^tail\.", ""),
)


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' release."""
    for pattern, replacement in _PUBLIC_NAMES:
        name, found = re.subn(pattern, replacement, name)
        if found:
            break
    return spynet_public_name(name)


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the frequencies of the position code, which follow from the number of frames."""
    kept = {name: value for name, value in tensors.items() if not name.endswith("penc.inv_freq")}
    return spynet_translate(kept)


def detect(tensors: Mapping[str, Tensor]) -> VSRTConfig | None:
    """The configuration of the tensors of a released file; None for other files.

    Shapes do not determine the number of frames (depth, in the release) or of heads.
    """
    norm = tensors.get("transformer.layers.0.0.fn.norm.weight")
    if norm is None or norm.dim() != 3:
        return None
    channels, size, _ = norm.shape
    depth = count_matching(tensors, r"transformer\.layers\.(\d+)\.0\.fn\.norm\.weight")
    tower = r"transformer\.layers\.0\.1\.fn\.fn\.backward_resblocks\.main\.2\.(\d+)\.conv1\.weight"
    return VSRTConfig(
        frames=depth,
        depth=depth,
        channels=channels,
        extract_blocks=count_matching(tensors, r"feature_extraction\.(\d+)\.conv1\.weight"),
        tower_blocks=count_matching(tensors, tower),
        reconstruct_blocks=count_matching(tensors, r"reconstruction\.(\d+)\.conv1\.weight"),
        size=size,
    )
