"""TOFlow (Xue et al., 2019): task-oriented flow on frames enlarged by bicubic interpolation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow, Switch
from vsrkit.models.layers.blocks import check_frames
from vsrkit.models.layers.flow import IMAGENET_MEAN, IMAGENET_STD, warp
from vsrkit.models.layers.resample import imresize
from vsrkit.models.spec import Spec, Window, check_size
from vsrkit.models.weights import Rules, rename

FRAMES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class TOFlowConfig:
    """Tensors do not determine the order of frames that a network was trained with."""

    centre_first: bool = True  # as the authors' weights expect; False: in temporal order


class TOFlow(nn.Module):
    """Enlarge, warp all frames onto the centre, refine by four convolutions."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: TOFlowConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Window(FRAMES), multiple=4)
        self.spynet = TaskFlow()
        self.conv_1 = nn.Conv2d(3 * FRAMES, 64, 9, padding=4)
        self.conv_2 = nn.Conv2d(64, 64, 9, padding=4)
        self.conv_3 = nn.Conv2d(64, 64, 1)
        self.conv_4 = nn.Conv2d(64, 3, 1)
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1))

    @property
    def anatomy(self) -> Anatomy:
        """Flow from the centre to every neighbour."""
        flow = Flow(between=self._flow_between, targets="window")
        return Anatomy(flow=flow, switches=(Switch.flow("spynet"),))

    def _flow_between(self, a: Tensor, b: Tensor) -> Tensor:
        """The network sees enlarged frames; its flow is averaged back to LR size."""
        large = self.spynet(*((imresize(x, 4) - self.mean) / self.std for x in (a, b)))
        return F.avg_pool2d(large, 4) / 4

    def forward(self, clip: Tensor) -> Tensor:
        """(B, 7, 3, H, W) -> (B, 1, 3, 4H, 4W): the centre frame."""
        check_frames(clip, FRAMES)
        check_size(clip, self.spec)
        return self.refine(imresize(clip, 4))[:, None]

    def refine(self, clip: Tensor) -> Tensor:
        """Frames of full size, sides multiples of 16: (B, 7, 3, H, W) -> (B, 3, H, W)."""
        middle = FRAMES // 2
        frames = list(((clip - self.mean) / self.std).unbind(1))
        centre = frames[middle]
        warped = [
            frame if i == middle else warp(frame, self.spynet(centre, frame))
            for i, frame in enumerate(frames)
        ]
        if self.config.centre_first:
            warped = [warped[middle], *warped[:middle], *warped[middle + 1 :]]
        x = F.relu(self.conv_1(torch.cat(warped, 1)))
        x = self.conv_4(F.relu(self.conv_3(F.relu(self.conv_2(x)))))
        return (x + centre) * self.std + self.mean


class TaskFlow(nn.Module):
    """SPyNet with batch normalisation and four levels; the coarsest starts from zero flow."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_level() for _ in range(4))

    def forward(self, reference: Tensor, neighbour: Tensor) -> Tensor:
        """Where each pixel of `reference` is in `neighbour`: (B, 3, H, W) twice -> (B, 2, H, W)."""
        references, neighbours = [reference], [neighbour]
        for _ in range(len(self.levels) - 1):
            references.append(F.avg_pool2d(references[-1], 2))
            neighbours.append(F.avg_pool2d(neighbours[-1], 2))
        b, _, h, w = references[-1].shape
        flow = torch.zeros(b, 2, h // 2, w // 2, device=reference.device)
        for level, ref, near in zip(self.levels, references[::-1], neighbours[::-1], strict=True):
            flow = 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=True)
            flow = flow + level(torch.cat([ref, warp(near, flow), flow], 1)).float()
        return flow


def _level() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in ((8, 32), (32, 64), (64, 32), (32, 16)):
        layers += [
            nn.Conv2d(inputs, outputs, 7, padding=3, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.Conv2d(16, 2, 7, padding=3))


# Public weight files.


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in BasicSR's files."""
    return re.sub(r"levels\.(\d)\.", r"basic_module.\1.basic_module.", name)


_MMEDIT_RULES: Rules = (
    (r"(basic_module\.\d\.basic_module)\.(\d)\.conv\.", lambda m: f"{m[1]}.{3 * int(m[2])}."),
    (r"(basic_module\.\d\.basic_module)\.(\d)\.bn\.", lambda m: f"{m[1]}.{3 * int(m[2]) + 1}."),
    (r"^conv([1-4])\.", r"conv_\1."),
)


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of mmediting and mmagic as in BasicSR."""
    return rename(tensors, _MMEDIT_RULES)


def detect(tensors: Mapping[str, Tensor]) -> TOFlowConfig | None:
    """The configuration of a BasicSR file; None if it is not TOFlow."""
    first = tensors.get("conv_1.weight")
    if first is None or "spynet.basic_module.0.basic_module.12.weight" not in tensors:
        return None
    return TOFlowConfig()
