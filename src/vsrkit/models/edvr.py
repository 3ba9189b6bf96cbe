"""EDVR (Wang et al., 2019): neighbours aligned by deformable convolution, fused by attention."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Attention, Switch
from vsrkit.models.layers.blocks import (
    ResidualBlock,
    TwoStageTail,
    check_frames,
    conv3x3,
    residual_blocks,
    upsample_bilinear,
)
from vsrkit.models.layers.deform import DeformPack
from vsrkit.models.layers.window_cache import WindowCache, map_frames
from vsrkit.models.spec import Spec, Window
from vsrkit.models.weights import Rules, count_matching, rename

LEVELS = ("l3", "l2", "l1")  # of the pyramid, coarsest first


@dataclass(frozen=True, slots=True, kw_only=True)
class EDVRConfig:
    """The defaults are EDVR-M for REDS."""

    channels: int = 64
    frames: int = 5
    extract_blocks: int = 5
    reconstruct_blocks: int = 10
    groups: int = 8  # of channels with a common offset in deformable convolutions
    attention: bool = True  # fusion by temporal and spatial attention; False: by a 1x1 convolution
    predeblur: bool = False  # features from a small pyramid, for blurry frames
    deblur_only: bool = False  # frames have full size already (scale 1)

    def __post_init__(self) -> None:
        if self.deblur_only and not self.predeblur:
            raise ValueError("deblur_only needs predeblur")


MEDIUM = EDVRConfig()
LARGE = EDVRConfig(channels=128, reconstruct_blocks=40)
LARGE_VIMEO = EDVRConfig(channels=128, reconstruct_blocks=40, frames=7)


def leaky(x: Tensor) -> Tensor:
    """LeakyReLU with the slope of this paper."""
    return F.leaky_relu(x, 0.1)


def double(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, C, 2H, 2W), bilinear."""
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class EDVR(nn.Module):
    """Front end (align and fuse), residual blocks, x4 tail."""

    def __init__(self, config: EDVRConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(
            scale=1 if config.deblur_only else 4,
            context=Window(config.frames),
            multiple=16 if config.deblur_only else 4,
            uses_window_cache=True,
        )
        self.front = FrontEnd(config)
        self.reconstruction = residual_blocks(config.reconstruct_blocks, config.channels)
        self.tail = TwoStageTail(config.channels)

    @property
    def anatomy(self) -> Anatomy:
        """Alignment, fusion by attention, reconstruction, tail."""
        fusion = Attention(title="fusion", module="front.fusion", kind="frames")
        words = "Neighbours are fused without being aligned."
        return Anatomy(
            attention=(fusion,) if self.config.attention else (),
            switches=(
                Switch("alignment", words, ("front.pcd_align",), lambda args, _: args[0]["l1"]),
                Switch.residual("reconstruction"),
                Switch.tail(),
            ),
        )

    def forward(self, clip: Tensor, cache: WindowCache | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, 1, 3, 4H, 4W): the centre frame."""
        check_frames(clip, self.config.frames)
        detail = self.tail(self.reconstruction(self.front(clip, cache)))
        centre = clip[:, self.config.frames // 2]
        base = centre if self.config.deblur_only else upsample_bilinear(centre, 4)
        return (detail + base)[:, None]


class FrontEnd(nn.Module):
    """Features of the centre frame from all frames: extraction, alignment, fusion.

    IconVSR uses it for its key frames.
    """

    def __init__(self, config: EDVRConfig) -> None:
        super().__init__()
        c = config.channels
        self.predeblur = Predeblur(c, config.deblur_only) if config.predeblur else None
        self.conv_1x1 = nn.Conv2d(c, c, 1) if config.predeblur else None
        self.conv_first = None if config.predeblur else conv3x3(3, c)
        self.feature_extraction = residual_blocks(config.extract_blocks, c)
        self.conv_l2_1, self.conv_l2_2 = conv3x3(c, c, stride=2), conv3x3(c, c)
        self.conv_l3_1, self.conv_l3_2 = conv3x3(c, c, stride=2), conv3x3(c, c)
        self.pcd_align = PyramidAlign(c, config.groups)
        self.fusion = (
            AttentionFusion(c, config.frames)
            if config.attention
            else nn.Conv2d(config.frames * c, c, 1)
        )

    def forward(self, clip: Tensor, cache: WindowCache | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, C, H, W)."""
        frames = map_frames(self._pyramid, clip, cache)
        centre = frames[len(frames) // 2]
        aligned = torch.stack([self.pcd_align(frame, centre) for frame in frames], 1)
        if isinstance(self.fusion, AttentionFusion):
            return self.fusion(aligned)
        return self.fusion(aligned.flatten(1, 2))

    def _pyramid(self, frame: Tensor) -> dict[str, Tensor]:
        """Features of one frame at full, half and quarter size."""
        l1 = self.feature_extraction(self._first(frame))
        l2 = leaky(self.conv_l2_2(leaky(self.conv_l2_1(l1))))
        l3 = leaky(self.conv_l3_2(leaky(self.conv_l3_1(l2))))
        return {"l1": l1, "l2": l2, "l3": l3}

    def _first(self, frame: Tensor) -> Tensor:
        if self.predeblur is not None and self.conv_1x1 is not None:
            return self.conv_1x1(self.predeblur(frame))
        assert self.conv_first is not None
        return leaky(self.conv_first(frame))


class PyramidAlign(nn.Module):
    """Align a neighbour to the centre, coarse to fine, and once more at full size."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        c = channels
        self.offset_conv1 = nn.ModuleDict({level: conv3x3(2 * c, c) for level in LEVELS})
        self.offset_conv2 = nn.ModuleDict(
            {level: conv3x3(c if level == "l3" else 2 * c, c) for level in LEVELS}
        )
        self.offset_conv3 = nn.ModuleDict({level: conv3x3(c, c) for level in LEVELS[1:]})
        self.dcn_pack = nn.ModuleDict({level: DeformPack(c, groups) for level in LEVELS})
        self.feat_conv = nn.ModuleDict({level: conv3x3(2 * c, c) for level in LEVELS[1:]})
        self.cas_offset_conv1 = conv3x3(2 * c, c)
        self.cas_offset_conv2 = conv3x3(c, c)
        self.cas_dcnpack = DeformPack(c, groups)

    def forward(self, neighbour: dict[str, Tensor], centre: dict[str, Tensor]) -> Tensor:
        """Two pyramids of (B, C, H, W) and its halves -> aligned features (B, C, H, W)."""
        offset = aligned = torch.empty(0)  # of the level above
        for level in LEVELS:
            pair = torch.cat([neighbour[level], centre[level]], 1)
            here = leaky(self.offset_conv1[level](pair))
            if level == "l3":
                here = leaky(self.offset_conv2[level](here))
            else:
                # Twice the size and twice the values: the authors' code doubles the features that
                # offsets are computed from.
                above = 2 * double(offset)
                here = leaky(self.offset_conv2[level](torch.cat([here, above], 1)))
                here = leaky(self.offset_conv3[level](here))
            moved = self.dcn_pack[level](neighbour[level], here)
            if level != "l3":
                moved = self.feat_conv[level](torch.cat([moved, double(aligned)], 1))
            offset, aligned = here, moved if level == "l1" else leaky(moved)
        offset = leaky(self.cas_offset_conv1(torch.cat([aligned, centre["l1"]], 1)))
        return leaky(self.cas_dcnpack(aligned, leaky(self.cas_offset_conv2(offset))))


class AttentionFusion(nn.Module):
    """Weight frames by similarity to the centre, then pixels by a small attention pyramid."""

    def __init__(self, channels: int, frames: int) -> None:
        super().__init__()
        c = channels
        self.temporal_attn1, self.temporal_attn2 = conv3x3(c, c), conv3x3(c, c)
        self.feat_fusion = nn.Conv2d(frames * c, c, 1)
        self.spatial_attn1 = nn.Conv2d(frames * c, c, 1)
        self.spatial_attn2 = nn.Conv2d(2 * c, c, 1)
        self.spatial_attn3 = conv3x3(c, c)
        self.spatial_attn4 = nn.Conv2d(c, c, 1)
        self.spatial_attn5 = conv3x3(c, c)
        self.spatial_attn_l1 = nn.Conv2d(c, c, 1)
        self.spatial_attn_l2 = conv3x3(2 * c, c)
        self.spatial_attn_l3 = conv3x3(c, c)
        self.spatial_attn_add1 = nn.Conv2d(c, c, 1)
        self.spatial_attn_add2 = nn.Conv2d(c, c, 1)

    def forward(self, aligned: Tensor) -> Tensor:  # (B, T, C, H, W) -> (B, C, H, W)
        joined = (aligned * self.weights(aligned)).flatten(1, 2)
        fused = leaky(self.feat_fusion(joined))
        half = leaky(self.spatial_attn2(_pool(leaky(self.spatial_attn1(joined)))))
        quarter = leaky(self.spatial_attn_l2(_pool(leaky(self.spatial_attn_l1(half)))))
        quarter = leaky(self.spatial_attn_l3(quarter))
        half = leaky(self.spatial_attn3(half)) + double(quarter)
        attention = self.spatial_attn5(double(leaky(self.spatial_attn4(half))))
        add = self.spatial_attn_add2(leaky(self.spatial_attn_add1(attention)))
        return fused * attention.sigmoid() * 2 + add

    def weights(self, aligned: Tensor) -> Tensor:
        """Weight of each frame in [0, 1] by its similarity to the centre: (B, T, 1, H, W)."""
        centre = self.temporal_attn1(aligned[:, aligned.shape[1] // 2])
        each = self.temporal_attn2(aligned.flatten(0, 1)).unflatten(0, aligned.shape[:2])
        return (each * centre[:, None]).sum(2, keepdim=True).sigmoid()


def _pool(x: Tensor) -> Tensor:
    """Max pooling and average pooling, joined: (N, C, H, W) -> (N, 2C, H/2, W/2)."""
    return torch.cat([F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1)], 1)


class Predeblur(nn.Module):
    """Features of a blurry frame from a three-level pyramid; frames may have 4x size."""

    def __init__(self, channels: int, full_size: bool) -> None:
        super().__init__()
        c = channels
        self.conv_first = conv3x3(3, c)
        self.stride_conv_hr1 = conv3x3(c, c, stride=2) if full_size else None
        self.stride_conv_hr2 = conv3x3(c, c, stride=2) if full_size else None
        self.stride_conv_l2, self.stride_conv_l3 = conv3x3(c, c, stride=2), conv3x3(c, c, stride=2)
        self.resblock_l3 = ResidualBlock(c)
        self.resblock_l2_1, self.resblock_l2_2 = ResidualBlock(c), ResidualBlock(c)
        self.resblock_l1 = residual_blocks(5, c)

    def forward(self, frame: Tensor) -> Tensor:  # (B, 3, H, W) -> (B, C, H, W), or of H/4, W/4
        l1 = leaky(self.conv_first(frame))
        if self.stride_conv_hr1 is not None and self.stride_conv_hr2 is not None:
            l1 = leaky(self.stride_conv_hr2(leaky(self.stride_conv_hr1(l1))))
        l2 = leaky(self.stride_conv_l2(l1))
        l3 = double(self.resblock_l3(leaky(self.stride_conv_l3(l2))))
        l2 = double(self.resblock_l2_2(self.resblock_l2_1(l2) + l3))
        return self.resblock_l1[2:](self.resblock_l1[:2](l1) + l2)


# Public weight files.


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in BasicSR's files."""
    return name.removeprefix("front.").removeprefix("tail.")


FRONT_END_RULES: Rules = (  # mmediting's names -> BasicSR's
    (r"feat_(l[23])_conv([12])\.conv\.", r"conv_\1_\2."),
    (r"pcd_alignment\.", "pcd_align."),
    (r"(pcd_align\.(?:offset_conv\d|feat_conv)\.l\d|pcd_align\.cas_offset_conv\d)\.conv\.", r"\1."),
    (r"(fusion\.(?:feat_fusion|spatial_attn\w*))\.conv\.", r"\1."),
)
_RULES: Rules = (
    *FRONT_END_RULES,
    (r"^upsample([12])\.upsample_conv\.", r"upconv\1."),
    # The authors' own files.
    (r"^fea_L([23])_conv([12])\.", r"conv_l\1_\2."),
    (r"^pcd_align\.L([123])_offset_conv([123])\.", r"pcd_align.offset_conv\2.l\1."),
    (r"^pcd_align\.L([123])_dcnpack\.", r"pcd_align.dcn_pack.l\1."),
    (r"\.conv_offset_mask\.", ".conv_offset."),
    (r"^pcd_align\.L([123])_fea_conv\.", r"pcd_align.feat_conv.l\1."),
    # Their first convolution is for the neighbours, BasicSR's first for the centre.
    (r"^tsa_fusion\.tAtt_([12])\.", lambda m: f"fusion.temporal_attn{3 - int(m[1])}."),
    (r"^tsa_fusion\.fea_fusion\.", "fusion.feat_fusion."),
    (r"^tsa_fusion\.sAtt_L(\d)\.", r"fusion.spatial_attn_l\1."),
    (r"^tsa_fusion\.sAtt_add_(\d)\.", r"fusion.spatial_attn_add\1."),
    (r"^tsa_fusion\.sAtt_(\d)\.", r"fusion.spatial_attn\1."),
    (r"^tsa_fusion\.(weight|bias)$", r"fusion.\1"),
    (r"^recon_trunk\.", "reconstruction."),
    (r"^HRconv\.", "conv_hr."),
)


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of mmediting, mmagic and the authors as in BasicSR; others stay the same."""
    return rename(tensors, _RULES)


def detect(tensors: Mapping[str, Tensor]) -> EDVRConfig | None:
    """The configuration of the tensors of a BasicSR file; None if it is not EDVR."""
    weight = tensors.get("pcd_align.dcn_pack.l1.weight")
    offset = tensors.get("pcd_align.dcn_pack.l1.conv_offset.weight")
    attended, plain = tensors.get("fusion.feat_fusion.weight"), tensors.get("fusion.weight")
    fusion = plain if attended is None else attended
    if weight is None or offset is None or fusion is None:
        return None
    channels = weight.shape[0]
    return EDVRConfig(
        channels=channels,
        frames=fusion.shape[1] // channels,
        extract_blocks=count_matching(tensors, r"feature_extraction\.\d+\.conv1\.weight"),
        reconstruct_blocks=count_matching(tensors, r"reconstruction\.\d+\.conv1\.weight"),
        groups=offset.shape[0] // 27,
        attention=attended is not None,
        predeblur="predeblur.conv_first.weight" in tensors,
        deblur_only="predeblur.stride_conv_hr1.weight" in tensors,
    )
