"""TDAN (Tian et al., 2020): neighbours aligned by deformable convolution, back to LR frames."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Switch
from vsrkit.models.layers.blocks import check_frames, conv3x3, residual_blocks
from vsrkit.models.layers.deform import deform_conv
from vsrkit.models.layers.window_cache import WindowCache, map_frames
from vsrkit.models.spec import Spec, Window
from vsrkit.models.weights import Rules, count_matching, rename


@dataclass(frozen=True, slots=True, kw_only=True)
class TDANConfig:
    """The defaults are the paper's."""

    channels: int = 64
    frames: int = 5
    extract_blocks: int = 5
    reconstruct_blocks: int = 10
    groups: int = 8  # of channels with a common offset in deformable convolutions


class TDAN(nn.Module):
    """Align every neighbour as an LR frame, then enlarge the aligned frames together."""

    anatomy = Anatomy(switches=(Switch.residual("reconstruction"),))

    def __init__(self, config: TDANConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Window(config.frames), uses_window_cache=True)
        c = config.channels
        self.conv_first = conv3x3(3, c)
        self.extraction = residual_blocks(config.extract_blocks, c)
        self.compare = conv3x3(2 * c, c)
        self.stages = nn.ModuleList(DeformStage(c, config.groups) for _ in range(4))
        self.to_lr = conv3x3(c, 3)
        self.join = conv3x3(3 * config.frames, c)
        self.reconstruction = residual_blocks(config.reconstruct_blocks, c)
        self.upsample = nn.Sequential(
            conv3x3(c, 4 * c), nn.PixelShuffle(2), conv3x3(c, 4 * c), nn.PixelShuffle(2)
        )
        self.conv_last = nn.Conv2d(c, 3, 3, padding=1, bias=False)

    def forward(self, clip: Tensor, cache: WindowCache | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, 1, 3, 4H, 4W): the centre frame."""
        check_frames(clip, self.config.frames)
        aligned = self.align(clip, cache) - 0.5  # the authors centre their frames on 0
        x = F.relu(self.join(aligned.flatten(1, 2)))
        sr = self.conv_last(self.upsample(self.reconstruction(x)))
        return sr[:, None] + 0.5

    def align(self, clip: Tensor, cache: WindowCache | None = None) -> Tensor:
        """Neighbours aligned to the centre frame: (B, T, 3, H, W) -> same.

        The paper also minimises their mean squared distance to the centre frame in training.
        """
        middle = clip.shape[1] // 2
        features = map_frames(self._features, clip, cache)
        aligned = [
            clip[:, i] if i == middle else self._align_one(features[middle], neighbour) + 0.5
            for i, neighbour in enumerate(features)
        ]
        return torch.stack(aligned, 1)

    def _features(self, frame: Tensor) -> Tensor:  # (B, 3, H, W) -> (B, C, H, W)
        return self.extraction(F.relu(self.conv_first(frame - 0.5)))

    def _align_one(self, centre: Tensor, neighbour: Tensor) -> Tensor:
        """Features (B, C, H, W) of both -> the neighbour as an LR frame (B, 3, H, W)."""
        x = self.compare(torch.cat([centre, neighbour], 1))
        for number, stage in enumerate(self.stages):
            # The third stage moves the neighbour; the others refine the features.
            x = stage(neighbour if number == 2 else x, x)
        return self.to_lr(x)


class DeformStage(nn.Module):
    """A 3x3 deformable convolution without mask and bias, and the convolution for its offsets."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.offset = conv3x3(channels, 2 * groups * 9)
        self.weight = nn.Parameter(torch.empty(channels, channels, 3, 3))
        bound = 1 / math.sqrt(channels * 9)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        """Sample `x` at offsets computed from `features`: (B, C, H, W) twice -> same."""
        return deform_conv(x, self.offset(features), None, self.weight)


# Public weight files.

_PUBLIC_STAGES = (
    ("off2d_1", "dconv_1"),
    ("off2d_2", "deconv_2"),
    ("off2d_3", "deconv_3"),
    ("off2d", "dconv"),
)
_PUBLIC_PARTS = {
    "extraction": "residual_layer",
    "compare": "cr",
    "to_lr": "recon_lr",
    "join": "fea_ex.0",
    "reconstruction": "recon_layer",
    "upsample": "up.0",
    "conv_last": "up.1",
}


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' files."""
    if stage := re.fullmatch(r"stages\.(\d)\.(offset\.)?(weight|bias)", name):
        offset, weight = _PUBLIC_STAGES[int(stage[1])]
        return f"{offset if stage[2] else weight}.{stage[3]}"
    part, _, rest = name.partition(".")
    return f"{_PUBLIC_PARTS.get(part, part)}.{rest}"


_MMEDIT_RULES: Rules = (
    (r"^feat_extract\.0\.conv\.", "conv_first."),
    (r"^feat_extract\.1\.", "residual_layer."),
    (r"^feat_aggregate\.0\.", "cr."),
    (r"^feat_aggregate\.([12])\.conv_offset\.", r"off2d_\1."),
    (r"^feat_aggregate\.1\.weight$", "dconv_1.weight"),
    (r"^feat_aggregate\.2\.weight$", "deconv_2.weight"),
    (r"^align_1\.conv_offset\.", "off2d_3."),
    (r"^align_1\.weight$", "deconv_3.weight"),
    (r"^align_2\.conv_offset\.", "off2d."),
    (r"^align_2\.weight$", "dconv.weight"),
    (r"^to_rgb\.", "recon_lr."),
    (r"^reconstruct\.0\.conv\.", "fea_ex.0."),
    (r"^reconstruct\.1\.", "recon_layer."),
    (r"^reconstruct\.([23])\.upsample_conv\.", lambda m: f"up.0.{2 * int(m[1]) - 4}."),
    (r"^reconstruct\.4\.", "up.1."),
)


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of mmediting and mmagic as in the authors' files; others keep their names."""
    return rename(tensors, _MMEDIT_RULES)


def detect(tensors: Mapping[str, Tensor]) -> TDANConfig | None:
    """The configuration of the tensors of an authors' file; None if it is not TDAN."""
    join, offset = tensors.get("fea_ex.0.weight"), tensors.get("off2d_1.weight")
    if join is None or offset is None:
        return None
    return TDANConfig(
        channels=join.shape[0],
        frames=join.shape[1] // 3,
        extract_blocks=count_matching(tensors, r"residual_layer\.\d+\.conv1\.weight"),
        reconstruct_blocks=count_matching(tensors, r"recon_layer\.\d+\.conv1\.weight"),
        groups=offset.shape[0] // 18,
    )
