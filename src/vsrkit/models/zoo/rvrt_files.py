"""Tensor names and configuration of the authors' weight files of RVRT."""

import re
from collections.abc import Mapping
from math import isqrt

from torch import Tensor

from vsrkit.models.layers.flow import spynet_basicsr_name
from vsrkit.models.rvrt import CLIP, TAPS, RVRTConfig
from vsrkit.models.weights import Rules, apply_rules, count_matching

PUBLIC_NAMES: Rules = (
    (r"^extract\.", "feat_extract.main."),
    (r"^reconstruction\.", "reconstruction.main."),
    (r"^branches\.(\w+)\.", r"backbone.\1.main."),
    (r"^alignments\.(\w+)\.([qkv])\.", r"deform_align.\1.proj_\2.1."),
    (r"^alignments\.(\w+)\.offset\.", r"deform_align.\1.conv_offset."),
    (r"^alignments\.(\w+)\.(proj|mlp)\.", r"deform_align.\1.\2.1."),
    (r"^tail\.first\.", "conv_before_upsampler.0."),
    (r"^tail\.upconv1\.", "upsampler.0."),
    (r"^tail\.upconv2\.", "upsampler.5."),
    (r"^tail\.conv_hr\.", "upsampler.10."),
    (r"^tail\.", ""),
    (r"\.main\.conv\.", ".main.1."),
    (r"\.main\.first_norm\.", ".main.3."),
    (r"\.main\.groups\.", ".main.5."),
    (r"\.main\.last_norm\.", ".main.7."),
    (r"\.blocks\.", ".residual_group.blocks."),
    (r"\.attention\.bias_table$", ".attn.relative_position_bias_table"),
    (r"\.attention\.qkv\.", ".attn.qkv_self."),
    (r"\.attention\.", ".attn."),
)


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' files."""
    return spynet_basicsr_name(apply_rules(name, PUBLIC_NAMES))


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the index into the table of distances; convolutions over one frame lose that axis."""
    return {
        name: value.squeeze(2) if value.dim() == 5 else value
        for name, value in tensors.items()
        if not name.endswith(".relative_position_index")
    }


def detect(tensors: Mapping[str, Tensor]) -> RVRTConfig | None:
    """The configuration of the tensors of an authors' file; None if it is not RVRT."""
    query = tensors.get("deform_align.backward_1.proj_q.1.weight")
    offset = tensors.get("deform_align.backward_1.conv_offset.10.weight")
    if query is None or offset is None:
        return None
    roots = ("feat_extract", "backbone.backward_1", "reconstruction")
    table = "residual_group.blocks.0.attn.relative_position_bias_table"
    tables = [tensors[f"{root}.main.5.0.{table}"] for root in roots]

    def count(pattern: str) -> tuple[int, int, int]:
        found = [count_matching(tensors, re.escape(f"{r}.main.5.") + pattern) for r in roots]
        return found[0], found[1], found[2]

    return RVRTConfig(
        channels=query.shape[1],
        groups=count(r"\d+\.linear\.weight"),
        depths=count(r"0\.residual_group\.blocks\.\d+\.norm1\.weight"),
        window_heads=(tables[0].shape[1], tables[1].shape[1], tables[2].shape[1]),
        window=(isqrt(tables[0].shape[0]) + 1) // 2,
        offset_groups=offset.shape[0] // (2 * CLIP * TAPS),
    )
