"""Learning the features and frames of a trained BasicVSR (`teacher_mode = "features"`).

    teacher   b[t] = trunk(lr[t], warp(b[t+1], flow))       30 blocks
    student   s[t] = tower(lr[t], warp(s[t+1], flow))       fewer and narrower ones (narrow.py)

The loss compares the student's features at the end of each tower and its frames with those of the
teacher. The teacher's frames contain no detail that LR does not determine, which makes them a
better target than HR if there are only a few hundred clips. The features of both are propagated
along the student's flow, so that a difference of the flows has no effect on the feature loss; the
teacher's frames are computed with its own flow.

A later run with `teacher_mode = "frames"` (teacher_outputs.py) improves the student further,
including its flow.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.layers.blocks import upsample_bilinear
from vsrkit.models.vsrt_small import VSRTSmall
from vsrkit.train.distill.narrow import WRONG_STUDENT, trunk_steps
from vsrkit.train.distill.teacher_outputs import Outputs, cached_outputs
from vsrkit.train.losses import Terms, weight_luma


class Distillation(nn.Module):
    """The loss of a student against its teacher: (lr, hr) -> named terms; HR is not used.

    Args:
        student: a vsrt-s or vsrt-m.
        teacher: a trained BasicVSR.
        weight: weight of the feature loss relative to the frame loss.
        cache: folder for the teacher's outputs, for clips that are drawn repeatedly.
    """

    def __init__(
        self, student: nn.Module, teacher: BasicVSR, *, weight: float, cache: Path | None = None
    ) -> None:
        super().__init__()
        if not isinstance(student, VSRTSmall) or student.config.propagation != "carried":
            raise VsrkitError(WRONG_STUDENT)
        self.student, self.teacher, self.weight, self.cache = student, teacher, weight, cache
        self.student.flow.requires_grad_(False)  # used by both: the loss cannot train it

    def forward(self, lr: Tensor, hr: Tensor) -> Terms:
        """(B, T, 3, H, W) and (B, T, 3, 4H, 4W) -> the terms `features` and `frames`."""
        frames, student = list(lr.unbind(1)), self.student
        down, up = range(len(frames) - 1, -1, -1), range(len(frames))
        target = cached_outputs(lr, self.teacher_outputs, self.cache)

        to_prev, to_next = student.flows(frames)
        backward = dict(student.chain(student.backward_tower, frames, to_next, down))
        forward = dict(student.chain(student.forward_tower, frames, to_prev, up))
        fused = {t: student.fuse(backward[t], forward[t]) for t in up}
        base = torch.stack([upsample_bilinear(frame, 4) for frame in frames], 1)
        sr = torch.stack(list(student.reconstruct(frames, fused, up)), 1)

        frame_loss = relative_error(weight_luma(sr - base), weight_luma(target["sr"] - base))
        backward_features = torch.stack([backward[t] for t in up], 1)
        forward_features = torch.stack([forward[t] for t in up], 1)
        feature_loss = relative_error(backward_features, target["backward"]) + relative_error(
            forward_features, target["forward"]
        )
        return {"features": self.weight * feature_loss, "frames": frame_loss}

    @torch.no_grad()
    def teacher_outputs(self, lr: Tensor) -> Outputs:
        """The teacher's frames, and its features at the end of both trunks."""
        frames, teacher = list(lr.unbind(1)), self.teacher
        to_prev, to_next = self.student.flows(frames)
        down, up = range(len(frames) - 1, -1, -1), range(len(frames))
        backward = [f for _, f in trunk_steps(teacher.backward_trunk, frames, to_next, down)]
        forward = [f for _, f in trunk_steps(teacher.forward_trunk, frames, to_prev, up)]
        return {
            "backward": torch.stack(backward[::-1], 1),
            "forward": torch.stack(forward, 1),
            "sr": teacher(lr),
        }


def relative_error(a: Tensor, target: Tensor) -> Tensor:
    """Mean square error of `a`, divided by the mean square of the target."""
    target = target.float()
    return (a.float() - target).square().mean() / target.square().mean()
