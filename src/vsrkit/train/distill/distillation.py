"""Learn from a trained BasicVSR: a narrowed preset comes nearer to what its teacher does.

    teacher   b[t] = trunk(lr[t], warp(b[t+1], flow))       30 blocks
    pupil     s[t] = tower(lr[t], warp(s[t+1], flow))       narrow ones (train/narrow.py)

The pupil's features at the end of each tower are held against the teacher's, its frames against
the teacher's frames: those hold what can be known of a frame, without the noise that cannot, so
that a few hundred clips teach more than HR does. Both carry their features along the pupil's flow;
with flows of their own the two would differ by what is not the pupil's fault. The frames are those
that the teacher makes with its own flow.

When the features are near, frames alone go further (train/answers.py), and the flow learns along.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.layers.blocks import Tower, upsample_bilinear
from vsrkit.models.vsrt_small import Flows, SmallConfig, VSRTSmall
from vsrkit.models.zoo import MODELS, load_model, local_weights
from vsrkit.train.distill.block_importance import Answers, noted
from vsrkit.train.distill.narrow import narrow, trunk_steps
from vsrkit.train.losses import weighted

ONLY_OURS = "only our own presets, vsrt-s and vsrt-m, can learn a teacher's features"


def teacher_named(name: str) -> BasicVSR:
    """A trained BasicVSR by name or file."""
    if name in MODELS and local_weights(name) is None:
        raise VsrkitError(
            f"the teacher {name} has no weights here; `vsrkit weights get {name}` brings them"
        )
    teacher = load_model(name)
    if not isinstance(teacher, BasicVSR):
        raise VsrkitError(f"a teacher must be a BasicVSR; {name} is none")
    return teacher.eval().requires_grad_(False)


def pupil_of(teacher: BasicVSR, config: object, lr: Tensor) -> VSRTSmall:
    """A preset that is narrowed from its teacher; lr: clips (B, T, 3, H, W) to do it by."""
    if not isinstance(config, SmallConfig):
        raise VsrkitError(ONLY_OURS)
    return narrow(teacher, config, lr)


class Lesson(nn.Module):
    """A pupil and its teacher: (lr, hr) -> what the pupil is to make less; HR is not looked at.

    weight: of the features, beside the frames
    notes: folder that keeps the teacher's answers, for clips that come again
    """

    def __init__(
        self, pupil: nn.Module, teacher: BasicVSR, *, weight: float, notes: Path | None = None
    ) -> None:
        super().__init__()
        if not isinstance(pupil, VSRTSmall) or pupil.config.propagation != "carried":
            raise VsrkitError(ONLY_OURS)
        self.pupil, self.teacher, self.weight, self.notes = pupil, teacher, weight, notes
        self.pupil.flow.requires_grad_(False)  # both go by it: there is nothing to be learnt

    def forward(self, lr: Tensor, hr: Tensor) -> Tensor:
        """(B, T, 3, H, W) and (B, T, 3, 4H, 4W) -> (): the loss."""
        frames, pupil = list(lr.unbind(1)), self.pupil
        down, up = range(len(frames) - 1, -1, -1), range(len(frames))
        taught = noted(lr, self.answer, self.notes)

        to_prev, to_next = pupil.flows(frames)
        backward = dict(pupil.chain(pupil.backward_tower, frames, to_next, down))
        forward = dict(pupil.chain(pupil.forward_tower, frames, to_prev, up))
        fused = {t: pupil.fuse(backward[t], forward[t]) for t in up}
        base = torch.stack([upsample_bilinear(frame, 4) for frame in frames], 1)
        sr = torch.stack(list(pupil.reconstruct(frames, fused, up)), 1)

        frames_apart = distance(weighted(sr - base), weighted(taught["sr"] - base))
        apart = distance(torch.stack([backward[t] for t in up], 1), taught["backward"]) + distance(
            torch.stack([forward[t] for t in up], 1), taught["forward"]
        )
        return self.weight * apart + frames_apart

    @torch.no_grad()
    def answer(self, lr: Tensor) -> Answers:
        """The teacher's frames and its features at the trunks' ends."""
        frames, teacher = list(lr.unbind(1)), self.teacher
        to_prev, to_next = self.pupil.flows(frames)
        down, up = range(len(frames) - 1, -1, -1), range(len(frames))
        backward = trunk_ends(teacher.backward_trunk, frames, to_next, down)
        forward = trunk_ends(teacher.forward_trunk, frames, to_prev, up)
        return {
            "backward": torch.stack(backward[::-1], 1),
            "forward": torch.stack(forward, 1),
            "sr": teacher(lr),
        }


def trunk_ends(trunk: Tower, frames: Sequence[Tensor], flows: Flows, order: range) -> list[Tensor]:
    """A trunk's features, in the order in which it goes through the frames."""
    return [features for _, features in trunk_steps(trunk, frames, flows, order)]


def distance(a: Tensor, goal: Tensor) -> Tensor:
    """Mean square distance; that of the goal from zero is 1."""
    goal = goal.float()
    return (a.float() - goal).square().mean() / goal.square().mean()
