"""PSRT-recurrent (Shi et al., 2022): Swin attention over frames aligned patch by patch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Attention, Flow, Place, Stage, Switch, Tap, passthrough
from vsrkit.models.basicvsr_plusplus import BRANCHES
from vsrkit.models.layers.blocks import TwoStageTail, conv3x3, upsample_bilinear
from vsrkit.models.layers.flow import SPyNet, compose_flows, spynet_basicsr_name, warp
from vsrkit.models.layers.swin import SwinBlock, WindowAttention
from vsrkit.models.spec import Segments, Spec, mirror_to
from vsrkit.models.weights import Rules, apply_rules, count_matching

PATCH = 8  # side of the patches that are moved as a whole; independent of the window
SLOTS = 3  # frames that attend to each other: one step away, current, two steps away
# The authors' code has these layers in every branch, and their files the weights; none is used.
UNUSED_WIDTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PSRTConfig:
    """The network, and the length of its segments; the defaults are the paper's."""

    channels: int = 120
    depths: tuple[int, ...] = (6, 6, 6)  # Swin blocks of each group
    window_heads: tuple[int, ...] = (6, 6, 6)  # attention heads of each group
    window: int = 8  # side of the attention windows
    tail_channels: int = 64
    drop_path: float = 0.1  # of the last block in training, rising from 0 at the first
    segment: int = 30  # frames per segment of a long shot
    warmup: int = 10  # frames run and dropped on either side of a segment

    def __post_init__(self) -> None:
        if len(self.depths) != len(self.window_heads):
            raise ValueError(
                f"depths and window_heads need one number for each group, got {self.depths} and "
                f"{self.window_heads}"
            )


class PSRT(nn.Module):
    """Four branches through the clip, backward and forward in turn, each on the one before."""

    def __init__(self, config: PSRTConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Segments(config.segment, config.warmup))
        self.spynet = SPyNet()
        self.first = conv3x3(3, config.channels)
        self.branches = nn.ModuleDict({name: Branch(config) for name in BRANCHES})
        self.to_tail = conv3x3(config.channels, config.tail_channels)
        self.tail = TwoStageTail(config.tail_channels)
        # Positions are rounded to whole pixels: no gradient reaches the flow network.
        self.spynet.requires_grad_(False)

    @property
    def anatomy(self) -> Anatomy:
        """Flow, four branches, the attention of the last one, tail."""
        group = len(self.config.depths) - 1
        return Anatomy(
            flow=Flow(between=self.spynet),
            attention=(
                Attention(
                    title="forward_2",
                    module=f"branches.forward_2.groups.{group}.blocks.0",
                    kind="window",
                    place=_slots,
                ),
            ),
            stages=(*(_stage(name) for name in BRANCHES), Stage.tail()),
            switches=(
                Switch.flow("spynet"),
                *(_without(direction) for direction in ("backward", "forward")),
                without_attention(self),
                Switch.tail(),
            ),
        )

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`.

        Each branch needs all frames of the one before; only the last one stops early.
        """
        frames = clip.unbind(1)
        start, stop, _ = (keep or slice(None)).indices(len(frames))
        to_next, to_prev = self.spynet.to_neighbours(frames)
        # A branch replaces the features of the one before: only these are held.
        features = [self.first(frame) for frame in frames]
        for name, branch in self.branches.items():
            if name.startswith("backward"):
                self._run(branch, range(len(frames) - 1, -1, -1), features, to_next)
            else:
                end = stop if name == BRANCHES[-1] else len(frames)
                self._run(branch, range(end), features, [None, *to_prev])
        return torch.stack(
            [self.reconstruct(frames[i], features[i]) for i in range(start, stop)], 1
        )

    def _run(
        self,
        branch: nn.Module,
        order: Iterable[int],
        features: list[Tensor],
        flows: Sequence[Tensor | None],
    ) -> None:
        """Run a branch over the frames in this order; its outputs replace `features`.

        flows: from each frame to the one before it in this order
        """
        near: Tensor | None = None  # output one step before
        far: Tensor | None = None  # output two steps before
        last: Tensor | None = None  # flow of the step before
        for i in order:
            current = features[i]
            if near is None:
                out = branch(current, current, current)
            else:
                flow = flows[i]
                assert flow is not None
                aligned = self.align(near, flow, current)
                if far is None or last is None:
                    farther = torch.zeros_like(aligned)
                else:
                    farther = self.align(far, compose_flows(flow, last), current)
                out = branch(current, aligned, farther)
                last = flow
            near, far = out, near
            features[i] = out

    def align(self, features: Tensor, flow: Tensor, current: Tensor) -> Tensor:
        """Bring features (B, C, H, W) of another frame to this one; `current` is not used."""
        return warp(features, patch_flow(flow), mode="nearest")

    def reconstruct(self, frame: Tensor, features: Tensor) -> Tensor:
        """(B, 3, H, W) and features (B, C, H, W) -> (B, 3, 4H, 4W)."""
        return self.tail(self.to_tail(features)) + upsample_bilinear(frame, 4)


def patch_flow(flow: Tensor) -> Tensor:
    """The mean of each patch of a flow, at each of its pixels: (B, 2, H, W) -> same.

    The flow is reflected at the right and the bottom, so that all patches are whole.
    """
    h, w = flow.shape[-2:]
    padded = mirror_to(flow, h + -h % PATCH, w + -w % PATCH, repeat_edge=False)
    means = F.avg_pool2d(padded, PATCH)
    spread = means.repeat_interleave(PATCH, 2).repeat_interleave(PATCH, 3)
    return spread[..., :h, :w]


class Branch(nn.Module):
    """Features of the current frame, improved by attention to two aligned neighbours."""

    def __init__(self, config: PSRTConfig) -> None:
        super().__init__()
        c = config.channels
        rates = torch.linspace(0, config.drop_path, sum(config.depths), device="cpu").tolist()
        self.first_norm = nn.LayerNorm(c)
        self.groups = nn.ModuleList()
        for depth, heads in zip(config.depths, config.window_heads, strict=True):
            self.groups.append(Group(c, heads, config.window, [rates.pop(0) for _ in range(depth)]))
        self.last_norm = nn.LayerNorm(c)
        self.last = conv3x3(c, c)
        self.unused = nn.ModuleDict(
            {
                "conv_first": conv3x3(3, c),
                "conv_first_feat": conv3x3(UNUSED_WIDTH, c),
                "conv_before_upsample": conv3x3(c, UNUSED_WIDTH),
            }
        ).requires_grad_(False)

    def forward(self, current: Tensor, near: Tensor, far: Tensor) -> Tensor:
        """Features (B, C, H, W) of this frame and of aligned ones -> (B, C, H, W)."""
        slots = [x.permute(0, 2, 3, 1) for x in (near, current, far)]
        tokens = self.first_norm(torch.stack(slots, 1))
        for group in self.groups:
            tokens = group(tokens)
        middle = self.last_norm(tokens[:, 1]).permute(0, 3, 1, 2)
        return self.last(middle) + current


class Group(nn.Module):
    """Swin blocks and a convolution of each frame, added to their input."""

    def __init__(self, channels: int, heads: int, window: int, rates: Sequence[float]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(
                SwinBlock(
                    channels,
                    heads,
                    (SLOTS, window, window),
                    shifted=number % 2 == 1,
                    drop_path=rate,
                )
                for number, rate in enumerate(rates)
            )
        )
        self.conv = conv3x3(channels, channels)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, D, H, W, C) -> same
        maps = self.blocks(tokens).permute(0, 1, 4, 2, 3)
        change = self.conv(maps.flatten(0, 1)).unflatten(0, maps.shape[:2])
        return tokens + change.permute(0, 1, 3, 4, 2)


def _stage(name: str) -> Stage:
    backward = name.startswith("backward")
    words = (
        "From the {} frame to the {}. Each step gets the features of the branch before (left) and "
        "the outputs of this one for the two frames before, aligned by flow."
    ).format(*(("last", "first") if backward else ("first", "last")))
    module = f"branches.{name}"
    before = Tap(module=module, side="input", backward=backward)
    return Stage(name, words, before, Tap(module=module, backward=backward))


def _without(direction: str) -> Switch:
    words = f"The {direction} branches return the features that they get."
    modules = tuple(f"branches.{name}" for name in BRANCHES if name.startswith(direction))
    return Switch(f"{direction} chain", words, modules, passthrough)


def without_attention(model: nn.Module) -> Switch:
    """No token gets anything from another one in any Swin block."""
    found = [n for n, part in model.named_modules() if isinstance(part, WindowAttention)]
    words = "Swin blocks add only their MLP: no pixel attends to another one."
    return Switch("window attention", words, tuple(found))


def _slots(frame: int, count: int) -> Place:
    """The call and the frames of the last branch's attention for one frame."""
    frames = (max(frame - 1, 0), frame, max(frame - 2, 0))
    return Place(call=frame, frames=frames, query=1)


# Public weight files.

PUBLIC_NAMES: Rules = (
    (r"^tail\.", ""),
    (r"^first\.", "conv_first."),
    (r"^to_tail\.", "conv_before_upsample."),
    (r"^branches\.", "patch_align."),
    (r"\.unused\.", "."),
    (r"\.first_norm\.", ".patch_embed.norm."),
    (r"\.last_norm\.", ".norm."),
    (r"\.last\.", ".conv_after_body."),
    (r"\.groups\.", ".layers."),
    (r"\.blocks\.", ".residual_group.blocks."),
    (r"\.attention\.bias_table$", ".attn.relative_position_bias_table"),
    (r"\.attention\.", ".attn."),
)


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' files."""
    return spynet_basicsr_name(apply_rules(name, PUBLIC_NAMES))


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the index into the table of distances, which follows from the window."""
    return {n: v for n, v in tensors.items() if not n.endswith(".relative_position_index")}


def detect(tensors: Mapping[str, Tensor]) -> PSRTConfig | None:
    """The configuration of the tensors of an authors' file; None if it is not PSRT."""
    return detect_branches(tensors, "patch_align", PSRTConfig)


def detect_branches(
    tensors: Mapping[str, Tensor], branches: str, kind: type[PSRTConfig]
) -> PSRTConfig | None:
    """The configuration of files whose Swin branches have this name."""
    first, to_tail = tensors.get("conv_first.weight"), tensors.get("conv_before_upsample.weight")
    root = rf"{branches}.backward_1.layers"
    table = ".residual_group.blocks.0.attn.relative_position_bias_table"
    if first is None or to_tail is None or f"{root}.0{table}" not in tensors:
        return None
    if first.shape[0] in (3, UNUSED_WIDTH):
        # The authors' code would then use layers that it does not use at any other width.
        raise ValueError(f"{first.shape[0]} channels are not supported")
    groups = count_matching(tensors, re.escape(root) + r"\.\d+" + re.escape(table))
    tables = [tensors[f"{root}.{n}{table}"] for n in range(groups)]
    name = re.escape(root) + r"\.{}\.residual_group\.blocks\.\d+\.norm1\.weight"
    return kind(
        channels=first.shape[0],
        depths=tuple(count_matching(tensors, name.format(n)) for n in range(groups)),
        window_heads=tuple(t.shape[1] for t in tables),
        window=(isqrt(tables[0].shape[0] // (2 * SLOTS - 1)) + 1) // 2,
        tail_channels=to_tail.shape[0],
    )
