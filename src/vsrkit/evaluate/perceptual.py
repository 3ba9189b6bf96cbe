"""Perceptual metrics by features of trained networks: LPIPS, tLPIPS and DISTS."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.evaluate.metric_weights import load_metric_weights
from vsrkit.evaluate.niqe import niqe

# Output channels of the convolutions, stage by stage; a stage ends where features are taken.
ALEXNET_KERNELS = ((3, 64, 11), (64, 192, 5), (192, 384, 3), (384, 256, 3), (256, 256, 3))
VGG16_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
# Input normalisation: LPIPS' own for [-1, 1], ImageNet's for [0, 1].
LPIPS_SHIFT, LPIPS_SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PERCEPTUAL_METRICS = frozenset({"lpips", "lpips_vgg", "dists", "niqe", "tlpips"})

Pool: TypeAlias = Callable[[Tensor], Tensor]


class AlexNet(nn.Module):
    """The five convolutions of AlexNet."""

    widths = tuple(out for _, out, _ in ALEXNET_KERNELS)

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(c, out, size, stride=4 if c == 3 else 1, padding=2 if c == 3 else size // 2)
            for c, out, size in ALEXNET_KERNELS
        )

    def forward(self, x: Tensor) -> Iterator[Tensor]:
        """(N, 3, H, W), normalised -> features after each convolution and its ReLU."""
        for number, conv in enumerate(self.convs):
            if number in (1, 2):
                x = F.max_pool2d(x, 3, stride=2)
            x = F.relu(conv(x))
            yield x


class VGG16(nn.Module):
    """The thirteen convolutions of VGG16."""

    widths = tuple(stage[-1] for stage in VGG16_STAGES)

    def __init__(self) -> None:
        super().__init__()
        outputs = [width for stage in VGG16_STAGES for width in stage]
        inputs = [3, *outputs[:-1]]
        self.convs = nn.ModuleList(
            nn.Conv2d(c, out, 3, padding=1) for c, out in zip(inputs, outputs, strict=True)
        )

    def forward(self, x: Tensor, pool: Pool | None = None) -> Iterator[Tensor]:
        """(N, 3, H, W), normalised -> features after each of the five stages.

        pool: between the stages; None takes the maximum of 2 x 2 values.
        """
        convs = iter(self.convs)
        for number, stage in enumerate(VGG16_STAGES):
            if number:
                x = pool(x) if pool else F.max_pool2d(x, 2)
            for _ in stage:
                x = F.relu(next(convs)(x))
            yield x


class LPIPS(nn.Module):
    """Learned perceptual image patch similarity (Zhang et al. 2018), version 0.1."""

    def __init__(self, network: AlexNet | VGG16) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.ParameterList(torch.zeros(width) for width in network.widths)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Distance of (N, 3, H, W) RGB in [0, 1]: (N,), 0 for equal pictures."""
        pairs = zip(self.heads, self._features(a), self._features(b), strict=True)
        # Weighted sum over the channels, then mean over the pixels, then sum over the layers.
        distances = [torch.einsum("c,nchw->nhw", w, (x - y).square()) for w, x, y in pairs]
        return torch.stack([distance.mean((1, 2)) for distance in distances]).sum(0)

    def _features(self, x: Tensor) -> Iterator[Tensor]:
        for features in self.network(normalised(2 * x - 1, LPIPS_SHIFT, LPIPS_SCALE)):
            yield features / (features.norm(dim=1, keepdim=True) + 1e-10)


class DISTS(nn.Module):
    """Deep image structure and texture similarity (Ding et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.network = VGG16()
        widths = (3, *VGG16.widths)
        self.alpha = nn.Parameter(torch.zeros(sum(widths)))  # weights of the means: texture
        self.beta = nn.Parameter(torch.zeros(sum(widths)))  # weights of the covariances: structure

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Distance of (N, 3, H, W) RGB in [0, 1]: (N,), 0 for equal pictures."""
        means, structures = [], []
        for x, y in zip(self._features(a), self._features(b), strict=True):
            mean_x, mean_y = x.mean((2, 3)), y.mean((2, 3))
            var_x, var_y = x.var((2, 3), correction=0), y.var((2, 3), correction=0)
            covariance = (x * y).mean((2, 3)) - mean_x * mean_y
            means.append((2 * mean_x * mean_y + 1e-6) / (mean_x**2 + mean_y**2 + 1e-6))
            structures.append((2 * covariance + 1e-6) / (var_x + var_y + 1e-6))
        similarity = torch.cat(means, 1) @ self.alpha + torch.cat(structures, 1) @ self.beta
        return 1 - similarity / (self.alpha.sum() + self.beta.sum())

    def _features(self, x: Tensor) -> Iterator[Tensor]:
        yield x
        yield from self.network(normalised(x, IMAGENET_MEAN, IMAGENET_STD), pool=_l2_pool)


def _l2_pool(x: Tensor) -> Tensor:
    """Root of the Hann-weighted mean of 3 x 3 squares, at every second pixel."""
    taps = torch.tensor([0.25, 0.5, 0.25], dtype=x.dtype, device=x.device)
    channels = x.shape[1]
    window = (taps[:, None] * taps).expand(channels, 1, 3, 3)
    return (F.conv2d(x * x, window, stride=2, padding=1, groups=channels) + 1e-12).sqrt()


def normalised(x: Tensor, shift: Sequence[float], scale: Sequence[float]) -> Tensor:
    """(N, 3, H, W) less `shift`, divided by `scale`, channel by channel."""
    return (x - x.new_tensor(shift)[:, None, None]) / x.new_tensor(scale)[:, None, None]


@cache
def load_lpips(network: str = "alexnet") -> LPIPS:
    """LPIPS with trained weights, by `alexnet` or `vgg16`; raises WeightsError if not installed."""
    tensors = load_metric_weights(f"lpips-{network}")
    metric = LPIPS(AlexNet() if network == "alexnet" else VGG16())
    _load_convs(metric.network, tensors)
    for number, head in enumerate(metric.heads):
        head.data.copy_(tensors[f"NetLinLayer_{number}.Conv_0.kernel"].flatten())
    return metric.eval().requires_grad_(False)


@cache
def load_dists() -> DISTS:
    """DISTS with trained weights; raises WeightsError if they are not installed."""
    metric = DISTS()
    _load_convs(metric.network, load_metric_weights("lpips-vgg16"))
    for name, tensor in load_metric_weights("dists").items():
        metric.get_parameter(name).data.copy_(tensor)
    return metric.eval().requires_grad_(False)


def _load_convs(network: AlexNet | VGG16, tensors: Mapping[str, Tensor]) -> None:
    prefix = "AlexNet_0" if isinstance(network, AlexNet) else "VGG16_0"
    for number, conv in enumerate(network.convs):
        for ours, theirs in (("weight", "kernel"), ("bias", "bias")):
            conv.get_parameter(ours).data.copy_(tensors[f"{prefix}.Conv_{number}.{theirs}"])


class PerceptualScores:
    """Perceptual metrics of the frames of a clip, in order.

    names: those of `PERCEPTUAL_METRICS` to compute.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self._before: tuple[Tensor, Tensor] | None = None

    @torch.inference_mode()
    def measure(self, sr: Tensor, hr: Tensor) -> dict[str, float]:
        """Score a frame against its ground truth: (3, H, W) each, RGB in [0, 1].

        tLPIPS compares the change from the previous frame, so the first frame has none: the
        absolute difference between LPIPS of consecutive outputs and that of consecutive ground
        truths (Chu et al. 2020).
        """
        now = (sr[None].float(), hr[None].float())
        before, self._before = self._before, now
        found = {}
        if "lpips" in self.names:
            found["lpips"] = float(load_lpips()(*now))
        if "lpips_vgg" in self.names:
            found["lpips_vgg"] = float(load_lpips("vgg16")(*now))
        if "dists" in self.names:
            found["dists"] = float(load_dists()(*now))
        if "niqe" in self.names:
            found["niqe"] = niqe(sr)
        if "tlpips" in self.names and before is not None:
            changes = [load_lpips()(x, y) for x, y in zip(now, before, strict=True)]
            found["tlpips"] = float((changes[0] - changes[1]).abs())
        return found
