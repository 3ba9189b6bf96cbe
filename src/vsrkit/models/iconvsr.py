"""IconVSR (Chan et al., 2021): BasicVSR with features of key frames refilled by EDVR."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.anatomy import Anatomy, Flow, Stage, Switch
from vsrkit.models.basicvsr import MMEDIT_RULES
from vsrkit.models.edvr import FRONT_END_RULES, EDVRConfig, FrontEnd
from vsrkit.models.layers.blocks import (
    Tower,
    TwoStageTail,
    conv3x3,
    reflect_to_multiple,
    upsample_bilinear,
)
from vsrkit.models.layers.flow import SPyNet, warp
from vsrkit.models.spec import Segments, Spec
from vsrkit.models.weights import count_matching, rename


@dataclass(frozen=True, slots=True, kw_only=True)
class IconVSRConfig:
    """The defaults are the paper's for REDS; for Vimeo-90K `reach` is 3."""

    channels: int = 64
    blocks: int = 30  # residual blocks per direction
    extract_blocks: int = 5  # of the key frames' front end
    groups: int = 8  # of its deformable convolutions
    reach: int = 2  # frames on either side of a key frame that EDVR takes
    key_stride: int = 5  # every fifth frame is a key frame, and the last one always
    segment: int = 30  # frames per segment of a long shot
    warmup: int = 10  # frames run and dropped on either side of a segment


REDS = IconVSRConfig()
VIMEO = IconVSRConfig(reach=3)


class IconVSR(nn.Module):
    """Backward pass, then a forward pass that takes its features; key frames refill both."""

    def __init__(self, config: IconVSRConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(
            scale=4,
            context=Segments(config.segment, config.warmup),
            minimum=4,
            min_frames=2 * config.reach + 1,
        )
        c = config.channels
        self.spynet = SPyNet()
        self.edvr = FrontEnd(
            EDVRConfig(
                channels=c,
                frames=2 * config.reach + 1,
                extract_blocks=config.extract_blocks,
                groups=config.groups,
            )
        )
        self.backward_fusion, self.forward_fusion = conv3x3(2 * c, c), conv3x3(2 * c, c)
        self.backward_trunk = Tower(c + 3, c, config.blocks)
        self.forward_trunk = Tower(2 * c + 3, c, config.blocks)
        self.tail = TwoStageTail(c)

    @property
    def anatomy(self) -> Anatomy:
        """Flow, two chains, refill of the key frames, tail."""
        words = "Key frames get no features from the frames around them."
        return Anatomy(
            flow=Flow(between=self._flow_between),
            stages=(*Stage.chains("backward_trunk", "forward_trunk"), Stage.tail()),
            switches=(
                Switch.flow("spynet"),
                *Switch.chains(["backward_trunk"], ["forward_trunk"]),
                Switch("refill", words, ("edvr",)),
                Switch.tail(),
            ),
        )

    def _flow_between(self, a: Tensor, b: Tensor) -> Tensor:
        flow = self.spynet(reflect_to_multiple(a, 4), reflect_to_multiple(b, 4))
        return flow[..., : a.shape[-2], : a.shape[-1]]

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`.

        The forward pass takes the backward features of every frame, so that only the forward pass
        after the last wanted frame is saved.
        """
        least = self.spec.min_frames
        if clip.shape[1] < least:
            raise VsrkitError(
                f"this IconVSR takes {least} frames or more, got {clip.shape[1]}; "
                "upscale_frames repeats the last one"
            )
        h, w = clip.shape[-2:]
        start, stop, _ = (keep or slice(None)).indices(clip.shape[1])
        clip = reflect_to_multiple(clip, 4)
        keys = self._key_features(clip)
        backward = self._run_backward(clip, keys)
        features = self._empty(clip)
        sr = []
        for i in range(stop):
            frame = clip[:, i]
            if i > 0:
                features = warp(features, self.spynet(frame, clip[:, i - 1]))
            if i in keys:
                features = self.forward_fusion(torch.cat([features, keys[i]], 1))
            features = self.forward_trunk(torch.cat([frame, backward.pop(), features], 1))
            if i >= start:
                sr.append(self.tail(features) + upsample_bilinear(frame, 4))
        return torch.stack(sr, 1)[..., : 4 * h, : 4 * w]

    def _run_backward(self, clip: Tensor, keys: dict[int, Tensor]) -> list[Tensor]:
        """Features of all frames, from the last one to the first."""
        last = clip.shape[1] - 1
        features = self._empty(clip)
        every = []
        for i in range(last, -1, -1):
            frame = clip[:, i]
            if i < last:
                features = warp(features, self.spynet(frame, clip[:, i + 1]))
            if i in keys:
                features = self.backward_fusion(torch.cat([features, keys[i]], 1))
            features = self.backward_trunk(torch.cat([frame, features], 1))
            every.append(features)
        return every

    def _key_features(self, clip: Tensor) -> dict[int, Tensor]:
        """Features (B, C, H, W) of the key frames, by frame number."""
        t, reach = clip.shape[1], self.config.reach
        numbers = neighbourhood(t, reach)
        keys = sorted({*range(0, t, self.config.key_stride), t - 1})
        return {i: self.edvr(clip[:, numbers[i : i + 2 * reach + 1]]) for i in keys}

    def _empty(self, clip: Tensor) -> Tensor:
        b, _, _, h, w = clip.shape
        return clip.new_zeros(b, self.config.channels, h, w)


def neighbourhood(frames: int, reach: int) -> list[int]:
    """Frame numbers of a clip extended by `reach` at both ends, as in the authors' code.

    It is not a reflection: with a reach of 2, frames 4 and 3 come before frame 0.
    """
    before = range(2 * reach, reach, -1)
    after = range(frames - reach - 2, frames - 2 * reach - 2, -1)
    return [*before, *range(frames), *after]


# Public weight files.


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of mmediting and mmagic as in BasicSR; others keep their names."""
    return rename(tensors, (*FRONT_END_RULES, *MMEDIT_RULES))


def detect(tensors: Mapping[str, Tensor]) -> IconVSRConfig | None:
    """The configuration of the tensors of a BasicSR file; None if it is not IconVSR.

    Tensors do not determine the stride of key frames; it is 5 in all public files.
    """
    fusion = tensors.get("edvr.fusion.feat_fusion.weight")
    offset = tensors.get("edvr.pcd_align.dcn_pack.l1.conv_offset.weight")
    if fusion is None or offset is None:
        return None
    return IconVSRConfig(
        channels=fusion.shape[0],
        blocks=count_matching(tensors, r"backward_trunk\.main\.2\.\d+\.conv1\.weight"),
        extract_blocks=count_matching(tensors, r"edvr\.feature_extraction\.\d+\.conv1\.weight"),
        groups=offset.shape[0] // 27,
        reach=fusion.shape[1] // fusion.shape[0] // 2,
    )
