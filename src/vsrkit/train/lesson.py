"""Learn from a trained BasicVSR: each block of a preset's tower stands for several of its blocks.

    teacher   b[t] = trunk(lr[t], warp(b[t+1], its own flow))                     30 blocks
    pupil     s[t] = tower(lr[t], warp(the teacher's b[t+1], the pupil's flow))    a few blocks

After each of its blocks the pupil's features are held against the teacher's after the last block of
the group that it stands for. It goes on from the teacher's features at every frame, not from its
own: so errors do not add up along time, all frames run at once, and what is to be learned is a
short tower instead of a long chain. The pupil's frames are held against HR besides.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

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
    """A pupil and its teacher: (lr, hr) -> what the pupil is to make less."""

    def __init__(self, pupil: nn.Module, teacher: BasicVSR, weight: float) -> None:
        super().__init__()
        if not isinstance(pupil, VSRTSmall) or pupil.config.propagation != "carried":
            raise VsrkitError(ONLY_OURS)
        self.pupil, self.teacher, self.weight = pupil, teacher, weight
        self.pupil.flow.requires_grad_(False)  # it moves the teacher's features: nothing to learn
        self.groups = {d: divide(worth, pupil.config.tower_blocks) for d, worth in WORTH.items()}

    def forward(self, lr: Tensor, hr: Tensor) -> Tensor:
        """(B, T, 3, H, W) and (B, T, 3, 4H, 4W) -> (): loss of frames and features."""
        frames, pupil = list(lr.unbind(1)), self.pupil
        to_prev, to_next = pupil.flows(frames)
        its_prev, its_next = spynet_flows(self.teacher.spynet, frames)
        down, up = range(len(frames) - 1, -1, -1), range(len(frames))
        t = self.teacher
        b_in, b_goals = self._teach(t.backward_trunk, frames, its_next, to_next, down, "backward")
        f_in, f_goals = self._teach(t.forward_trunk, frames, its_prev, to_prev, up, "forward")

        backward, forward = through(pupil.backward_tower, b_in), through(pupil.forward_tower, f_in)
        fused = F.leaky_relu(pupil.fusion(torch.cat([backward[-1], forward[-1]], 1)), 0.1)
        by_frame = dict(enumerate(fused.chunk(len(frames))))
        sr = torch.stack(
            [
                pupil.tail(pupil.head(x)) + upsample_bilinear(frames[i], 4)
                for i, x in pupil.attend(by_frame, range(len(frames)))
            ],
            1,
        )
        distance = feature_distance(backward, b_goals) + feature_distance(forward, f_goals)
        return charbonnier(sr, hr) + self.weight * distance

    @torch.no_grad()
    def _teach(
        self,
        trunk: Tower,
        frames: Sequence[Tensor],
        flows: Flows,
        pupils_flows: Flows,
        order: Iterable[int],
        direction: Direction,
    ) -> tuple[Tensor, list[Tensor]]:
        """What the pupil's tower gets, frame after frame (T * B, 67, H, W), and its goals."""
        ends = [group.stop - 1 for group in self.groups[direction]]
        nothing = frames[0].new_zeros(
            frames[0].shape[0], self.teacher.config.channels, *frames[0].shape[-2:]
        )
        inputs: dict[int, Tensor] = {}
        goals: dict[int, list[Tensor]] = {}
        carried: Tensor | None = None
        for t in order:
            flow, pupils_flow = flows[t], pupils_flows[t]
            known = carried is not None and flow is not None and pupils_flow is not None
            near = warp(carried, flow) if known else nothing  # type: ignore[arg-type]
            seen = warp(carried, pupils_flow) if known else nothing  # type: ignore[arg-type]
            inputs[t] = torch.cat([frames[t], seen], 1)
            features = through(trunk, torch.cat([frames[t], near], 1))
            goals[t] = [features[end] for end in ends]
            carried = features[-1]
        in_time = range(len(frames))
        return torch.cat([inputs[t] for t in in_time]), [
            torch.cat([goals[t][block] for t in in_time]) for block in range(len(ends))
        ]


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
