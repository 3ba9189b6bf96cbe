"""RVRT (Liang et al., 2022): clips of two frames, aligned by guided deformable attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Attention, Flow, Place, Stage, Switch, Tap
from vsrkit.models.basicvsr_plusplus import BRANCHES
from vsrkit.models.layers.blocks import activated, conv3x3, upsample_bilinear
from vsrkit.models.layers.deform import deform_attention
from vsrkit.models.layers.flow import SPyNet, compose_flows, warp
from vsrkit.models.layers.swin import Mlp, SwinBlock
from vsrkit.models.psrt import without_attention
from vsrkit.models.spec import Segments, Spec

CLIP = 2  # frames that are processed at once
TAPS = 9  # 3x3 pixels of each frame that a pixel attends to
REACH = 10.0  # largest offset in pixels in addition to the flow
HIDDEN = 64  # channels of the offset network and of the tail
# Flows (2B, 2, H, W) from the frames of a clip to those of the clip before it: to the frame at the
# same place, and to the other one.
Guides: TypeAlias = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class RVRTConfig:
    """The network, and the length of its segments; the defaults are the paper's.

    Three numbers are for the extraction, the four branches, and the reconstruction.
    """

    channels: int = 144
    groups: tuple[int, int, int] = (1, 2, 1)  # groups of Swin blocks
    depths: tuple[int, int, int] = (2, 2, 2)  # Swin blocks of each group
    window_heads: tuple[int, int, int] = (6, 6, 6)  # attention heads of Swin blocks
    window: int = 8  # side of the attention windows
    offset_groups: int = 12  # of channels with a common offset in guided deformable attention
    heads: int = 12  # of guided deformable attention; tensor shapes do not determine it
    segment: int = 30  # frames per segment of a long shot
    warmup: int = 10  # frames run and dropped on either side of a segment

    def __post_init__(self) -> None:
        for name, parts in (("offset_groups", self.offset_groups), ("heads", self.heads)):
            if parts < 1 or 2 * self.channels % parts:
                raise ValueError(
                    f"{name} must divide {2 * self.channels}, twice the channels, got {parts}"
                )
        if self.segment % CLIP or self.warmup % CLIP:
            raise ValueError(
                f"segment and warmup must be multiples of {CLIP}, "
                f"got {self.segment} and {self.warmup}"
            )


class RVRT(nn.Module):
    """Four branches through the clips, each on all before it; their features are fused.

    Frames are grouped in clips of two; features of a clip are (2B, C, H, W), frame after frame.
    """

    def __init__(self, config: RVRTConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(
            scale=4,
            context=Segments(config.segment, config.warmup),
            multiple=config.window,
            extends_by="mirror",
        )
        c = config.channels
        self.spynet = SPyNet()
        self.extract = Refiner(3, config, stage=0)
        self.alignments = nn.ModuleDict({name: GuidedAttention(config) for name in BRANCHES})
        self.branches = nn.ModuleDict(
            {name: Refiner((2 + n) * c, config, stage=1) for n, name in enumerate(BRANCHES)}
        )
        self.reconstruction = Refiner((1 + len(BRANCHES)) * c, config, stage=2)
        self.tail = Tail(c)

    @property
    def anatomy(self) -> Anatomy:
        """Flow, four branches, the attention of the last one, fusion, tail."""
        group = self.config.groups[1] - 1
        words = "Features of all branches, joined."
        aligned = "Nothing is aligned: branches get no features of other clips."
        return Anatomy(
            flow=Flow(between=self.spynet),
            attention=(
                Attention(
                    title="forward_2",
                    module=f"branches.forward_2.groups.{group}.blocks.0",
                    kind="window",
                    place=_clip_of,
                ),
            ),
            stages=(
                *(_stage(name) for name in BRANCHES),
                Stage("reconstruction", words, None, Tap(module="reconstruction")),
                Stage.tail(),
            ),
            switches=(
                Switch.flow("spynet"),
                *Switch.chains(
                    [f"branches.{n}" for n in BRANCHES if n.startswith("backward")],
                    [f"branches.{n}" for n in BRANCHES if n.startswith("forward")],
                ),
                Switch("alignment", aligned, tuple(f"alignments.{n}.read" for n in BRANCHES)),
                without_attention(self),
                Switch.tail(),
            ),
        )

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`.

        The last frame of an odd number is used twice, as in the authors' test. Each branch needs
        all frames of those before; only the last one stops early.
        """
        frames = list(clip.unbind(1))
        start, stop, _ = (keep or slice(None)).indices(len(frames))
        frames += frames[-1:] * (len(frames) % CLIP)
        to_next, to_prev = self.spynet.to_neighbours(frames)
        extracted = [self.extract(frame, 1) for frame in frames]
        pairs = zip(extracted[::CLIP], extracted[1::CLIP], strict=True)
        features = [[torch.stack(pair, 1).flatten(0, 1) for pair in pairs]]
        del extracted
        guides: dict[str, list[Guides]] = {}
        for name in BRANCHES:
            direction = name[:-2]
            flows = to_prev if direction == "forward" else to_next[::-1]
            known = guides.get(direction)
            end = -(-stop // CLIP) if name == BRANCHES[-1] else len(features[0])
            done, guides[direction] = self._run(name, features, flows, known, end)
            features.append(done)
        return torch.stack(
            [self._reconstruct(frames[i], features, i) for i in range(start, stop)], 1
        )

    def _run(
        self,
        name: str,
        features: Sequence[Sequence[Tensor]],
        flows: Sequence[Tensor],
        guides: list[Guides] | None,
        end: int,
    ) -> tuple[list[Tensor], list[Guides]]:
        """Run a branch over the clips up to `end`; returns its features and its guides.

        features: of every clip, of the extraction and of all branches before
        flows: in visiting order, from every frame but the first to the one before it
        guides: those of the first branch of the same direction; None for that branch itself
        """
        backward = name.startswith("backward")
        order = range(end - 1, -1, -1) if backward else range(end)
        results: dict[int, Tensor] = {}
        used: list[Guides] = []
        carried, last = torch.zeros_like(features[0][0]), features[0][0]
        for step, number in enumerate(order):
            known = [every[number] for every in features]
            if backward:  # the clip's later frame comes first
                known = [swapped(x) for x in known]
            if step > 0:
                guide = guides[step - 1] if guides else _guides(flows[CLIP * (step - 1) :])
                carried, guide = self.alignments[name](known[-1], last, carried, guide)
                used.append(guide)
            joined = torch.cat([*known, carried.to(known[-1])], 1)
            carried = carried + self.branches[name](joined, CLIP)
            results[number] = swapped(carried) if backward else carried
            last = known[-1]
        return [results[number] for number in range(end)], used

    def _reconstruct(
        self, frame: Tensor, features: Sequence[Sequence[Tensor]], number: int
    ) -> Tensor:
        here = [every[number // CLIP][number % CLIP :: CLIP] for every in features]
        fused = self.reconstruction(torch.cat(here, 1), 1)
        return self.tail(fused) + upsample_bilinear(frame, 4)


def swapped(features: Tensor) -> Tensor:
    """The two frames of a clip in reverse order: (2B, C, H, W) -> same."""
    return features.unflatten(0, (-1, CLIP)).flip(1).flatten(0, 1)


def _guides(flows: Sequence[Tensor]) -> Guides:
    """Flows from frames 2 and 3 to frames 0 and 1, and to 1 and 0: (2B, 2, H, W) each.

    flows: (B, 2, H, W) from frame 1 to 0, from 2 to 1, from 3 to 2
    """
    one, two, three = flows[:3]
    from_2 = compose_flows(two, one)
    same = torch.stack([from_2, compose_flows(three, two)], 1)
    other = torch.stack([two, compose_flows(three, from_2)], 1)
    return same.flatten(0, 1), other.flatten(0, 1)


class Refiner(nn.Module):
    """A convolution of each frame and groups of Swin blocks.

    stage: 0 extraction, 1 branches, 2 reconstruction
    """

    def __init__(self, inputs: int, config: RVRTConfig, *, stage: int) -> None:
        super().__init__()
        c = config.channels
        window = (CLIP if stage == 1 else 1, config.window, config.window)
        self.conv = conv3x3(inputs, c)
        self.first_norm = nn.LayerNorm(c)
        self.groups = nn.Sequential(
            *(
                Group(c, config.depths[stage], config.window_heads[stage], window)
                for _ in range(config.groups[stage])
            )
        )
        self.last_norm = nn.LayerNorm(c)

    def forward(self, x: Tensor, frames: int) -> Tensor:
        """(N * frames, inputs, H, W) -> (N * frames, C, H, W)."""
        tokens = self.conv(x).permute(0, 2, 3, 1).unflatten(0, (-1, frames))
        tokens = self.last_norm(self.groups(self.first_norm(tokens)))
        return tokens.flatten(0, 1).permute(0, 3, 1, 2)


class Group(nn.Module):
    """Swin blocks and a linear layer, added to their input."""

    def __init__(self, channels: int, depth: int, heads: int, window: tuple[int, int, int]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(SwinBlock(channels, heads, window, shifted=n % 2 == 1) for n in range(depth))
        )
        self.linear = nn.Linear(channels, channels)

    def forward(self, tokens: Tensor) -> Tensor:  # (N, D, H, W, C) -> same
        return tokens + self.linear(self.blocks(tokens))


class GuidedAttention(nn.Module):
    """Aligns the clip before: attention to pixels around the places that flows lead to."""

    def __init__(self, config: RVRTConfig) -> None:
        super().__init__()
        c, self.heads = config.channels, config.heads
        self.q, self.k, self.v = (nn.Linear(c, 2 * c) for _ in range(3))
        self.proj = nn.Linear(2 * c, c)
        self.mlp = Mlp(c, 2 * c)
        sizes = (3 * c + 4, *[HIDDEN] * 5)
        layers: list[nn.Module] = []
        for n, (inputs, outputs) in enumerate(pairwise(sizes)):
            layers += [conv3x3(inputs, outputs) if n else PixelConv(inputs, outputs)]
            layers += [nn.LeakyReLU(0.1, inplace=True)]
        last = PixelConv(HIDDEN, CLIP * config.offset_groups * TAPS * 2)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        self.offset = nn.Sequential(*layers, last)
        self.read = nn.Identity()  # what was read, for `inspect`

    def forward(
        self, current: Tensor, last: Tensor, carried: Tensor, guides: Guides
    ) -> tuple[Tensor, Guides]:
        """Bring the outputs for the clip before to this one: (2B, C, H, W) three times -> same.

        current, last: features of this clip and of the one before, for queries and keys
        carried: outputs of this branch for the clip before, for values
        guides: flows to that clip

        Returns the aligned outputs and the guides moved by the mean of all offsets.
        """
        same, other = guides
        warped = warp(carried, same), warp(swapped(carried), other)
        joined = torch.cat([current, *warped, same.to(current), other.to(current)], 1)
        moves = (REACH * torch.tanh(self.offset(joined).float())).chunk(2, 1)
        # Offsets are (dy, dx) and flows (u, v).
        offsets = [
            (move.unflatten(1, (-1, 2)) + flow.flip(1)[:, None]).flatten(1, 2)
            for move, flow in zip(moves, guides, strict=True)
        ]
        keys_values = torch.cat([on_pixels(self.k, last), on_pixels(self.v, carried)], 1)
        found = deform_attention(
            on_pixels(self.q, current),
            (keys_values, swapped(keys_values)),
            offsets,
            self.heads,
        )
        aligned = self.proj(found.permute(0, 2, 3, 1))
        aligned = self.read((aligned + self.mlp(aligned)).permute(0, 3, 1, 2))
        first, second = (o.unflatten(1, (-1, 2)).mean(1).flip(1) for o in offsets)
        return aligned, (first, second)


def on_pixels(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply a linear layer to every pixel: (N, C, H, W) -> (N, C', H, W)."""
    done: Tensor = layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return done


class PixelConv(nn.Conv2d):
    """A 1x1 convolution that gives the same bytes on any number of threads.

    PyTorch's own rounds differently; as a matrix product it does not.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:  # (N, inputs, H, W) -> (N, outputs, H, W)
        pixels = F.linear(x.permute(0, 2, 3, 1), self.weight.flatten(1), self.bias)
        return pixels.permute(0, 3, 1, 2)


class Tail(nn.Module):
    """Features to RGB at x4; unlike `TwoStageTail` it does not activate the last features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = PixelConv(channels, HIDDEN)
        self.upconv1, self.upconv2 = (conv3x3(HIDDEN, 4 * HIDDEN) for _ in range(2))
        self.conv_hr, self.conv_last = conv3x3(HIDDEN, HIDDEN), conv3x3(HIDDEN, 3)

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, 3, 4H, 4W)
        x = F.leaky_relu(self.first(x), 0.1)
        for conv in (self.upconv1, self.upconv2):
            x = F.pixel_shuffle(activated(conv, x, 0.1), 2)
        return self.conv_last(self.conv_hr(x))


def _stage(name: str) -> Stage:
    backward = name.startswith("backward")
    words = (
        "From the {} clip of two frames to the {}: features of all branches before and of the clip "
        "visited before, aligned by guided deformable attention. What is added to the latter."
    ).format(*(("last", "first") if backward else ("first", "last")))
    return Stage(name, words, None, Tap(module=f"branches.{name}", backward=backward, frames=CLIP))


def _clip_of(frame: int, count: int) -> Place:
    """The call of the last branch's attention for one frame, and the frames of its clip."""
    first = frame // CLIP * CLIP
    return Place(call=frame // CLIP, frames=(first, min(first + 1, count - 1)), query=frame - first)
