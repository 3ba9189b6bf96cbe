"""BasicVSR++ (Chan et al., 2022): four passes over the clip, aligned by deformable convolution."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow, Stage, Switch, Tap
from vsrkit.models.basicvsr import MMEDIT_RULES
from vsrkit.models.layers.blocks import (
    Tower,
    TwoStageTail,
    at_least_float32,
    computed_in,
    conv3x3,
    memory_format_of,
    resize,
    upsample_bilinear,
)
from vsrkit.models.layers.deform import deform_conv
from vsrkit.models.layers.flow import SPyNet, compose_flows, spynet_basicsr_name, warp
from vsrkit.models.spec import Segments, Spec
from vsrkit.models.weights import count_matching, rename

BRANCHES = ("backward_1", "forward_1", "backward_2", "forward_2")  # in the order of the passes
EDGE_BLOCKS = 5  # residual blocks of the feature extraction and of the reconstruction


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicVSRPlusPlusConfig:
    """The network, and the length of its segments; the defaults are the paper's."""

    channels: int = 64
    blocks: int = 7  # residual blocks per pass
    groups: int = 16  # of channels with a common offset in deformable convolutions
    max_offset: float = 10.0  # largest correction of the flow in pixels; not stored in files
    same_size: bool = False  # input of the output's size, for restoration (scale 1)
    segment: int = 30  # frames per segment of a long shot
    warmup: int = 10  # frames run and dropped on either side of a segment

    def __post_init__(self) -> None:
        if self.groups % 2 or 2 * self.channels % self.groups:
            raise ValueError(
                f"groups must be even and divide {2 * self.channels} channels, got {self.groups}"
            )


NTIRE = BasicVSRPlusPlusConfig(channels=128, blocks=25)
NTIRE_DECOMPRESS = BasicVSRPlusPlusConfig(channels=128, blocks=25, same_size=True)


class BasicVSRPlusPlus(nn.Module):
    """Features of each frame, four passes that each use all earlier ones, and a x4 tail."""

    def __init__(self, config: BasicVSRPlusPlusConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(
            scale=1 if config.same_size else 4,
            context=Segments(config.segment, config.warmup),
            multiple=4 if config.same_size else 1,
            features_per_frame=len(BRANCHES),
        )
        c = config.channels
        self.spynet = SPyNet()
        self.feat_extract = _quartered(c) if config.same_size else Tower(3, c, EDGE_BLOCKS)
        self.deform_align = nn.ModuleDict({branch: FlowGuidedAlign(config) for branch in BRANCHES})
        self.backbone = nn.ModuleDict(
            {branch: Tower((2 + k) * c, c, config.blocks) for k, branch in enumerate(BRANCHES)}
        )
        self.reconstruction = Tower(5 * c, c, EDGE_BLOCKS)
        self.tail = TwoStageTail(c)

    @property
    def anatomy(self) -> Anatomy:
        """Flow, alignment, four passes, reconstruction, tail."""
        return Anatomy(
            flow=Flow(between=self._flow_between),
            stages=(
                *(_pass_stage(branch) for branch in BRANCHES),
                Stage(
                    "reconstruction",
                    "Features of the frame and of all passes, joined.",
                    None,
                    Tap(module="reconstruction"),
                ),
                Stage.tail(),
            ),
            switches=(
                Switch.flow("spynet"),
                Switch(
                    "alignment",
                    "Features of the frame before are used without being aligned.",
                    tuple(f"deform_align.{branch}" for branch in BRANCHES),
                    lambda args, _: args[1],
                ),
                *Switch.chains(_pass_modules("backward"), _pass_modules("forward")),
                Switch.tail(),
            ),
        )

    def _flow_between(self, a: Tensor, b: Tensor) -> Tensor:
        flow = self.spynet(self._at_feature_size(a), self._at_feature_size(b))
        size = (a.shape[-2], a.shape[-1])
        return 4 * resize(flow, size) if self.config.same_size else flow

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`.

        Every pass uses those before it, of all frames; only the last one stops at the last wanted
        frame, and the features of a frame are freed once it has been passed.
        """
        start, stop, _ = (keep or slice(None)).indices(clip.shape[1])
        frames = clip.unbind(1)
        flows = self.spynet.to_neighbours([self._at_feature_size(frame) for frame in frames])
        features = [[self.feat_extract(frame)] for frame in frames]
        for branch in BRANCHES[:-1]:
            for i, found in self._run_pass(branch, features, flows):
                features[i].append(found)
        sr = []
        for i, found in self._run_pass(BRANCHES[-1], features, flows):
            if i >= start:
                sr.append(self._reconstruct(frames[i], [*features[i], found]))
            features[i].clear()
            if i == stop - 1:
                break
        return torch.stack(sr, 1)

    def _at_feature_size(self, frame: Tensor) -> Tensor:
        """The frame (B, 3, H, W), or its quarter size, at which the features are."""
        if not self.config.same_size:
            return frame
        return resize(frame, (frame.shape[-2] // 4, frame.shape[-1] // 4), mode="bicubic")

    def _run_pass(
        self,
        branch: str,
        features: Sequence[Sequence[Tensor]],
        flows: tuple[Sequence[Tensor], Sequence[Tensor]],
    ) -> Iterator[tuple[int, Tensor]]:
        """Frame numbers and features (B, C, H, W) of one pass, in the order of the pass.

        features: for each frame its own features and those of the finished passes
        flows: from each frame but the last to the next one, and back, (B, 2, H, W) each
        """
        to_next, to_prev = flows
        backward = branch.startswith("backward")
        numbers = range(len(features))
        near = far = torch.zeros_like(features[0][0])  # of the last step and the one before it
        flow = last_flow = near.new_zeros(0)
        for step, i in enumerate(reversed(numbers) if backward else numbers):
            aligned = near
            if step > 0:
                flow = to_next[i] if backward else to_prev[i - 1]
                far_flow = torch.zeros_like(flow) if step == 1 else compose_flows(flow, last_flow)
                align = self.deform_align[branch]
                aligned = align(features[i][0], near, far, flow, far_flow)
            found = aligned + self.backbone[branch](torch.cat([*features[i], aligned], 1))
            yield i, found
            near, far, last_flow = found, near, flow

    def _reconstruct(self, frame: Tensor, features: Sequence[Tensor]) -> Tensor:
        detail = self.tail(self.reconstruction(torch.cat(list(features), 1)))
        return detail + (frame if self.config.same_size else upsample_bilinear(frame, 4))


def _quartered(channels: int) -> nn.Sequential:
    """Features of a frame at a quarter of its size."""
    return nn.Sequential(
        conv3x3(3, channels, stride=2),
        nn.LeakyReLU(0.1, inplace=True),
        conv3x3(channels, channels, stride=2),
        nn.LeakyReLU(0.1, inplace=True),
        Tower(channels, channels, EDGE_BLOCKS),
    )


class FlowGuidedAlign(nn.Module):
    """Deformable convolution of features one and two steps back, along the flow to them.

    The offsets are the flow and a correction, which is estimated from the warped features.
    """

    def __init__(self, config: BasicVSRPlusPlusConfig) -> None:
        super().__init__()
        c, taps = config.channels, 9
        self.max_offset = config.max_offset
        self.weight = nn.Parameter(torch.empty(c, 2 * c, 3, 3))
        self.bias = nn.Parameter(torch.zeros(c))
        bound = 1 / math.sqrt(2 * c * taps)
        nn.init.uniform_(self.weight, -bound, bound)
        last = conv3x3(c, 3 * config.groups * taps)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        self.conv_offset = nn.Sequential(
            conv3x3(3 * c + 4, c),
            nn.LeakyReLU(0.1, inplace=True),
            conv3x3(c, c),
            nn.LeakyReLU(0.1, inplace=True),
            conv3x3(c, c),
            nn.LeakyReLU(0.1, inplace=True),
            last,
        )

    def forward(
        self, features: Tensor, near: Tensor, far: Tensor, near_flow: Tensor, far_flow: Tensor
    ) -> Tensor:
        """Features (B, C, H, W) of the neighbours, aligned to the frame.

        features: of the frame itself
        near, far: of the neighbours one and two steps back, not aligned, (B, C, H, W)
        near_flow, far_flow: from the frame to these neighbours, (B, 2, H, W) in pixels
        """
        dtype, layout = computed_in(features), memory_format_of(features)
        parts = [warp(near, near_flow), features, warp(far, far_flow), near_flow, far_flow]
        found = self.conv_offset(
            torch.cat([part.to(dtype, memory_format=layout) for part in parts], 1)
        )
        moves, mask = found.split([found.shape[1] * 2 // 3, found.shape[1] // 3], 1)
        moves = (self.max_offset * at_least_float32(moves).tanh()).unflatten(1, (2, -1, 2))
        # Half of the groups, those of `near`, follow its flow, the others that of `far`. Offsets
        # are (dy, dx), a flow is (u, v).
        flows = torch.stack([near_flow.flip(1), far_flow.flip(1)], 1)[:, :, None]
        offset = (moves + flows).flatten(1, 3)
        aligned = deform_conv(
            torch.cat([near, far], 1), offset, mask.sigmoid(), self.weight, self.bias
        )
        return aligned.contiguous(memory_format=layout)


def _pass_stage(branch: str) -> Stage:
    direction, number = branch.split("_")
    return Stage(
        f"{direction} pass {number}",
        f"Residual blocks on the frame, earlier passes and aligned features of the "
        f"{'next' if direction == 'backward' else 'previous'} two frames.",
        None,
        Tap(module=f"backbone.{branch}", backward=direction == "backward"),
    )


def _pass_modules(direction: str) -> list[str]:
    """The modules without which the passes of a direction output zeros."""
    branches = [branch for branch in BRANCHES if branch.startswith(direction)]
    return [f"{part}.{branch}" for branch in branches for part in ("deform_align", "backbone")]


# Public weight files.


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in BasicSR's style."""
    return spynet_basicsr_name(name.removeprefix("tail."))


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of mmediting and mmagic as in BasicSR; others keep their names."""
    return rename(tensors, MMEDIT_RULES)


def detect(tensors: Mapping[str, Tensor]) -> BasicVSRPlusPlusConfig | None:
    """The configuration of the tensors of a BasicSR file; None if it is not BasicVSR++."""
    weight = tensors.get("deform_align.backward_1.weight")
    offset = tensors.get("deform_align.backward_1.conv_offset.6.weight")
    if weight is None or offset is None:
        return None
    return BasicVSRPlusPlusConfig(
        channels=weight.shape[0],
        blocks=count_matching(tensors, r"backbone\.backward_1\.main\.2\.\d+\.conv1\.weight"),
        groups=offset.shape[0] // 27,
        same_size="feat_extract.0.weight" in tensors,
    )
