"""Learn from a trained BasicVSR: a narrowed preset comes nearer to what its teacher does.

    teacher   b[t] = trunk(lr[t], warp(b[t+1], flow))       30 blocks
    pupil     s[t] = tower(lr[t], warp(s[t+1], flow))       narrow ones (train/narrow.py)

The pupil's features at the end of each tower are held against the teacher's, its frames against
the teacher's frames: those hold what can be known of a frame, without the noise that cannot, so
that a few hundred clips teach more than HR does. Both carry their features along the pupil's flow;
with flows of their own the two would differ by what is not the pupil's fault. The frames are those
that the teacher makes with its own flow.

For compressed frames the lesson is what the teacher makes of clean ones, and its frames alone:
features of frames that differ need not agree. Where features are not compared, the pupil's flow
may learn, too; and the nearer a pupil is to its teacher, the more of the goal can be HR.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.data.degrade import BI, degrade
from vsrkit.errors import VsrkitError
from vsrkit.evaluate.metrics import Y_OF_RGB
from vsrkit.models import MODELS, load_model, weights_at_hand
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.blocks import Tower, upsample_bilinear
from vsrkit.models.vsrt_small import Flows, SmallConfig, VSRTSmall
from vsrkit.train.losses import unrest
from vsrkit.train.narrow import narrow, trunk_steps
from vsrkit.train.notes import Answers, noted

LUMA = 0.7  # weight of brightness, beside that of the three colours together
ONLY_OURS = "only our own presets, vsrt-s and vsrt-m, can learn from a teacher"


def teacher_named(name: str) -> BasicVSR:
    """A trained BasicVSR by name or file."""
    if name in MODELS and weights_at_hand(name) is None:
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
    """A pupil and its teacher: (lr, hr) -> what the pupil is to make less.

    weight: of the features, beside the frames; 0: they are not compared
    clean: the teacher sees HR made small instead of `lr`, and features are not compared
    hr_share: of HR in what the frames are held against; the rest is the teacher's
    steadiness: weight of how much frames change along the motion, beside their error
    notes: folder that keeps the teacher's answers, for clips that come again
    """

    def __init__(
        self,
        pupil: nn.Module,
        teacher: BasicVSR,
        *,
        weight: float,
        clean: bool = False,
        hr_share: float = 0.0,
        steadiness: float = 0.0,
        notes: Path | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(pupil, VSRTSmall) or pupil.config.propagation != "carried":
            raise VsrkitError(ONLY_OURS)
        self.pupil, self.teacher, self.notes = pupil, teacher, notes
        self.weight, self.clean, self.hr_share = 0.0 if clean else weight, clean, hr_share
        self.steadiness = steadiness
        if self.weight:
            self.pupil.flow.requires_grad_(False)  # both go by it: there is nothing to be learnt

    def forward(self, lr: Tensor, hr: Tensor) -> Tensor:
        """(B, T, 3, H, W) and (B, T, 3, 4H, 4W) -> (): the loss."""
        frames, pupil = list(lr.unbind(1)), self.pupil
        down, up = range(len(frames) - 1, -1, -1), range(len(frames))
        taught = noted(made_small(hr) if self.clean else lr, self.answer, self.notes)

        to_prev, to_next = pupil.flows(frames)
        backward = dict(pupil.chain(pupil.backward_tower, frames, to_next, down))
        forward = dict(pupil.chain(pupil.forward_tower, frames, to_prev, up))
        fused = {t: pupil.fuse(backward[t], forward[t]) for t in up}
        base = torch.stack([upsample_bilinear(frame, 4) for frame in frames], 1)
        sr = torch.stack(list(pupil.reconstruct(frames, fused, up)), 1)

        detail = weighted(torch.lerp(taught["sr"], hr, self.hr_share) - base)
        frames_apart = distance(weighted(sr - base), detail)
        if self.steadiness and len(frames) > 1:
            flow = torch.stack([flow for flow in to_prev if flow is not None], 1)
            frames_apart += self.steadiness * unrest(sr, hr, flow) / detail.square().mean()
        if not self.weight:
            return frames_apart
        apart = distance(torch.stack([backward[t] for t in up], 1), taught["backward"]) + distance(
            torch.stack([forward[t] for t in up], 1), taught["forward"]
        )
        return self.weight * apart + frames_apart

    @torch.no_grad()
    def answer(self, lr: Tensor) -> Answers:
        """The teacher's frames and, where they are compared, its features at the trunks' ends."""
        if not self.weight:
            return {"sr": self.teacher(lr)}
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


def made_small(hr: Tensor) -> Tensor:
    """(B, T, 3, 4H, 4W) -> (B, T, 3, H, W), as clean sources are."""
    return torch.stack([degrade(clip, BI(4)) for clip in hr])


def weighted(rgb: Tensor) -> Tensor:
    """RGB (B, T, 3, H, W) with brightness as a fourth, whose square weighs most: eyes see it so."""
    shares = (Y_OF_RGB / Y_OF_RGB.sum()).to(rgb).view(3, 1, 1)
    luma = (rgb * shares).sum(2, keepdim=True)
    return torch.cat([rgb * ((1 - LUMA) / 3) ** 0.5, luma * LUMA**0.5], 2)


def distance(a: Tensor, goal: Tensor) -> Tensor:
    """Mean square distance; that of the goal from zero is 1."""
    goal = goal.float()
    return (a.float() - goal).square().mean() / goal.square().mean()
