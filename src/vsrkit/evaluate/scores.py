"""Every metric of a clip's frames, gathered as they come."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from torch import Tensor

from vsrkit.data.degrade import BD, BI, degrade_frames
from vsrkit.evaluate.metrics import measured, ms_ssim, psnr, ssim
from vsrkit.evaluate.protocol import Protocol
from vsrkit.evaluate.temporal import Temporal
from vsrkit.evaluate.vmaf import VmafClip

Metric: TypeAlias = Literal[
    "psnr",
    "ssim",
    "ms_ssim",
    "warping_error",
    "warped_flicker",
    "tof",
    "flicker",
    "consistency",
    "vmaf",
]
METRICS: tuple[Metric, ...] = get_args(Metric)
USUAL: tuple[Metric, ...] = ("psnr", "ssim")


@dataclass
class Scores:
    """Scores of a clip's frames as they come; a context manager for what VMAF keeps on disk."""

    protocol: Protocol
    metrics: Sequence[Metric]
    scale: int
    frames: int = 0
    values: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._temporal = Temporal(frozenset(self.metrics))
        self._vmaf = VmafClip() if "vmaf" in self.metrics else None

    def __enter__(self) -> "Scores":
        return self

    def __exit__(self, *_: object) -> None:
        if self._vmaf:
            self._vmaf.__exit__()

    def add(self, sr: Tensor, hr: Tensor, lr: Tensor) -> None:
        """Score one frame: (3, sH, sW), (3, sH, sW) and (3, H, W), all in [0, 1]."""
        self.frames += 1
        a, b = self.protocol.measured(sr), self.protocol.measured(hr)
        found: dict[str, float] = {}
        if "psnr" in self.metrics:
            found["psnr"] = psnr(a, b)
        if "ssim" in self.metrics:
            found["ssim"] = ssim(a, b)
        if "ms_ssim" in self.metrics:
            found["ms_ssim"] = ms_ssim(a, b)
        if "consistency" in self.metrics:
            found["consistency"] = consistency(sr, lr, self.protocol)
        found |= self._temporal.measure(sr, hr)
        if self._vmaf:
            self._vmaf.add(sr, hr)
        for name, value in found.items():
            self.values.setdefault(name, []).append(value)

    def means(self) -> dict[str, float]:
        """Mean over the frames so far."""
        means = {name: sum(values) / len(values) for name, values in self.values.items()}
        if self._vmaf and self.frames:
            means["vmaf"] = self._vmaf.score()
        return means


def consistency(sr: Tensor, lr: Tensor, protocol: Protocol) -> float:
    """PSNR in dB between what was given and the output made small again; needs no ground truth.

    Compressed input is compared with the bicubic reduction: no output can know the encoder.
    """
    how = protocol.degradation if isinstance(protocol.degradation, BD) else BI()
    small = next(degrade_frames([sr], replace(how, scale=protocol.degradation.scale)))
    a, b = (measured(x, channel=protocol.channel) for x in (small, lr))
    return psnr(a, b)
