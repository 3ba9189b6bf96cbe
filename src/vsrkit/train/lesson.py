"""Learn from a trained BasicVSR: each block of a preset's tower stands for several of its blocks.

    teacher   b[t] = trunk(lr[t], warp(b[t+1], its own flow))             30 blocks
    pupil     s[t] = tower(lr[t], warp(s[t+1], the pupil's flow))         a few blocks
    or, led   s[t] = tower(lr[t], warp(b[t+1], the pupil's flow))

After each of its blocks the pupil's features are held against the teacher's after the last block of
the group that it stands for. As long as the pupil's own features are far off, it is led: it goes on
from the teacher's at every frame, so that errors do not add up along time, and what is to be
learned is a short tower instead of a long chain. Later it must live with its own. The pupil's
frames are held against HR and against the teacher's besides.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models import load_model
from vsrkit.models.basicvsr import BasicVSR, public_name
from vsrkit.models.blocks import Tower, upsample_bilinear
from vsrkit.models.flow import SPyNet, warp
from vsrkit.models.vsrt_small import Flows, SmallConfig, VSRTSmall, inherit
from vsrkit.train.losses import charbonnier

Direction: TypeAlias = Literal["backward", "forward"]
Features: TypeAlias = dict[int, list[Tensor]]  # by frame, features after each block
Groups: TypeAlias = list[range]  # of the teacher's blocks, one for each of the pupil's

# What BasicVSR (Vimeo-90K, BI) loses on held-out crops without one of its blocks, in dB.
WORTH: Mapping[Direction, tuple[float, ...]] = {
    "backward": (
        0.26, 0.12, 0.25, 0.42, 0.53, 0.09, 0.09, 0.11, 0.02, 0.05, 0.10, 0.08, 0.42, 0.07, 0.06,
        0.13, 0.03, 0.28, 0.00, 0.02, 0.11, 0.15, 0.07, 0.06, 0.12, 0.14, 0.10, 0.11, 0.34, 0.29,
    ),
    "forward": (
        0.16, 0.31, 0.15, 0.25, 0.21, 0.33, 0.06, 0.02, 0.18, 0.02, 0.12, 0.07, 0.04, 0.10, 0.03,
        0.05, 0.19, 0.10, 0.19, 0.15, 0.15, 0.05, 0.09, 0.09, 0.12, 0.03, 0.11, 0.13, 0.36, 0.15,
    ),
}  # fmt: skip
ONLY_OURS = "only our own presets, vsrt-s and vsrt-m, can learn from a teacher"
INNER = 0.3  # weight of the features on the way, beside those at a tower's end


def divide(worth: Sequence[float], count: int) -> Groups:
    """Blocks in a row as `count` groups, each to be done by one block: none is to lose much.

    A group loses what its blocks are worth but for the best of them.
    """
    total = len(worth)
    if not 1 <= count <= total:
        raise VsrkitError(f"{total} blocks cannot be divided into {count} groups")
    best: dict[int, tuple[float, Groups]] = {0: (0.0, [])}  # by the blocks that are divided
    for _ in range(count):
        best = {
            end: min(
                (
                    (
                        loss + (sum(worth[start:end]) - max(worth[start:end])) ** 1.5,
                        [*groups, range(start, end)],
                    )
                    for start, (loss, groups) in best.items()
                    if start < end
                ),
                key=lambda option: option[0],
            )
            for end in range(min(best) + 1, total + 1)
        }
    return best[total][1]


def heads_of(worth: Sequence[float], groups: Groups) -> list[int]:
    """The best block of each group: what its pupil starts from."""
    return [max(group, key=lambda block: worth[block]) for group in groups]


def teacher_named(name: str) -> BasicVSR:
    """A trained BasicVSR by name or file."""
    teacher = load_model(name)
    blocks = len(WORTH["backward"])
    if not isinstance(teacher, BasicVSR) or teacher.config.blocks != blocks:
        raise VsrkitError(f"a teacher must be a BasicVSR with {blocks} blocks; {name} is none")
    return teacher.eval().requires_grad_(False)


def pupil_of(teacher: BasicVSR, config: object) -> VSRTSmall:
    """A preset that starts from the best block of each group."""
    if not isinstance(config, SmallConfig):
        raise VsrkitError(ONLY_OURS)
    tensors = {public_name(name): value for name, value in teacher.state_dict().items()}
    heads = {
        direction: heads_of(worth, divide(worth, config.tower_blocks))
        for direction, worth in WORTH.items()
    }
    return inherit(
        config, tensors, backward_blocks=heads["backward"], forward_blocks=heads["forward"]
    )


class Lesson(nn.Module):
    """A pupil and its teacher: (lr, hr) -> what the pupil is to make less.

    weight: of the features, beside the frames
    led: share of the clips on which the pupil goes on from the teacher's features
    """

    def __init__(
        self, pupil: nn.Module, teacher: BasicVSR, *, weight: float, led: float = 1.0
    ) -> None:
        super().__init__()
        if not isinstance(pupil, VSRTSmall) or pupil.config.propagation != "carried":
            raise VsrkitError(ONLY_OURS)
        self.pupil, self.teacher, self.weight, self.led = pupil, teacher, weight, led
        self.pupil.flow.requires_grad_(False)  # it moves the teacher's features: nothing to learn
        self.groups = {d: divide(worth, pupil.config.tower_blocks) for d, worth in WORTH.items()}

    def forward(self, lr: Tensor, hr: Tensor) -> Tensor:
        """(B, T, 3, H, W) and (B, T, 3, 4H, 4W) -> (): loss of frames and features."""
        frames, pupil = list(lr.unbind(1)), self.pupil
        down, up = range(len(frames) - 1, -1, -1), range(len(frames))
        b_goals, f_goals, goal = self._taught(frames, down, up)

        to_prev, to_next = pupil.flows(frames)
        led = torch.rand(lr.shape[0], 1, 1, 1, device=lr.device) < self.led
        backward = learn(pupil.backward_tower, frames, to_next, down, b_goals, led)
        forward = learn(pupil.forward_tower, frames, to_prev, up, f_goals, led)
        fused = {
            t: F.leaky_relu(pupil.fusion(torch.cat([backward[t][-1], forward[t][-1]], 1)), 0.1)
            for t in up
        }
        base = torch.stack([upsample_bilinear(frame, 4) for frame in frames], 1)
        detail = [pupil.tail(pupil.head(x)) for _, x in pupil.attend(fused, up)]
        sr = base + torch.stack(detail, 1)

        distance = self._apart(backward, b_goals, "backward") + self._apart(
            forward, f_goals, "forward"
        )
        # Square distances from the teacher fade as they shrink, that from HR never does: beside
        # the noise in it the little that a good pupil has yet to learn would be lost.
        missed = (sr - goal).square().mean() / (goal - base).square().mean()
        return charbonnier(sr, hr) + self.weight * (distance + missed)

    @torch.no_grad()
    def _taught(
        self, frames: list[Tensor], down: range, up: range
    ) -> tuple[Features, Features, Tensor]:
        """The teacher's features in both directions, and its frames (B, T, 3, 4H, 4W)."""
        teacher = self.teacher
        to_prev, to_next = spynet_flows(teacher.spynet, frames)
        backward = teach(teacher.backward_trunk, frames, to_next, down)
        forward = teach(teacher.forward_trunk, frames, to_prev, up)
        sr = [teacher.reconstruct(x, backward[t][-1], forward[t][-1]) for t, x in enumerate(frames)]
        return backward, forward, torch.stack(sr, 1)

    def _apart(self, features: Features, goals: Features, direction: Direction) -> Tensor:
        """The mean over all frames of the distance between a tower's features and its goals."""
        ends = [group.stop - 1 for group in self.groups[direction]]
        distances = [
            feature_distance(features[t], [goals[t][end] for end in ends]) for t in features
        ]
        return torch.stack(distances).mean()


def teach(trunk: Tower, frames: Sequence[Tensor], flows: Flows, order: Iterable[int]) -> Features:
    """By frame, the teacher's features after each of its blocks."""
    goals: Features = {}
    carried: Tensor | None = None
    for t in order:
        goals[t] = through(
            trunk, torch.cat([frames[t], _moved(carried, flows[t], trunk, frames)], 1)
        )
        carried = goals[t][-1]
    return goals


def learn(
    tower: Tower,
    frames: Sequence[Tensor],
    flows: Flows,
    order: Iterable[int],
    goals: Features,
    led: Tensor,
) -> Features:
    """By frame, the pupil's features; on from the teacher's where `led` (B, 1, 1, 1) says so."""
    features: Features = {}
    carried: Tensor | None = None
    for t in order:
        near = _moved(carried, flows[t], tower, frames)
        features[t] = through(tower, torch.cat([frames[t], near], 1))
        carried = torch.where(led, goals[t][-1], features[t][-1])
    return features


def _moved(
    carried: Tensor | None, flow: Tensor | None, tower: Tower, frames: Sequence[Tensor]
) -> Tensor:
    """Features of the neighbouring frame, moved to where things are now; zeros if it has none."""
    if carried is None or flow is None:
        first = cast(nn.Conv2d, tower.main[0])
        b, colours, h, w = frames[0].shape
        return frames[0].new_zeros(b, first.in_channels - colours, h, w)
    return warp(carried, flow)


def through(tower: Tower, x: Tensor) -> list[Tensor]:
    """The features of a tower after each of its blocks."""
    first, activation, blocks = tower.main
    x = activation(first(x))
    features = []
    for block in blocks:  # type: ignore[attr-defined]
        x = block(x)
        features.append(x)
    return features


def feature_distance(features: Sequence[Tensor], goals: Sequence[Tensor]) -> Tensor:
    """Mean square distance at a tower's end and, with less weight, on the way; the goal is 1."""
    size = goals[-1].square().mean()
    apart = [(a - b).square().mean() / size for a, b in zip(features, goals, strict=True)]
    inner = apart[:-1] or [torch.zeros_like(apart[-1])]
    return apart[-1] + INNER * torch.stack(inner).mean()


def spynet_flows(spynet: SPyNet, frames: Sequence[Tensor]) -> tuple[Flows, Flows]:
    """Each frame's flow to the previous and to the next, None where there is none."""
    if len(frames) == 1:
        return [None], [None]
    with torch.no_grad():
        before, after = torch.cat(list(frames[:-1])), torch.cat(list(frames[1:]))
        back, there = spynet(after, before), spynet(before, after)
    count = len(frames) - 1
    return [None, *back.chunk(count)], [*there.chunk(count), None]
