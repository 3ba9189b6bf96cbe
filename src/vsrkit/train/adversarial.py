"""The adversarial term: a discriminator that learns to tell the output of a model from HR."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import spectral_norm

from vsrkit.models.layers.flow import warp
from vsrkit.models.weights import read_checkpoint
from vsrkit.train.losses import Output, Term, Terms, enlarged_flow
from vsrkit.train.perceptual import draw_window
from vsrkit.train.settings import ConfigError, Losses


class Adversarial(Term):
    """The discriminator's judgement of the output, and the loss that trains the discriminator.

    Both are terms of one loss: the model has no gradient from `discriminator`, and the
    discriminator none from `gan`. Judgements are averaged, so that two processes have the gradients
    of one with both their clips.

    Args:
        losses: weight and options.
    """

    def __init__(self, losses: Losses) -> None:
        super().__init__()
        self.weight, self.window = losses.gan, losses.window
        self.relativistic = losses.gan_kind == "relativistic"
        self.frames = losses.gan_frames
        self.needs_flow = self.frames == 3
        self.first_step = losses.gan_from
        self.active = True  # whether the model has a gradient from this term
        self.discriminator = Discriminator(3 * self.frames, losses.discriminator_channels)
        if losses.discriminator:
            load_discriminator(self.discriminator, Path(losses.discriminator))

    @torch.no_grad()
    def start_step(self, step: int) -> None:
        """Decide whether the model is judged in this step, and update the spectral norms.

        They are updated once in each step, not in each forward pass, so that all its batches are
        judged by the same weights.
        """
        self.active = step >= self.first_step
        self.discriminator.train()
        for layer in self.discriminator.modules():
            if isinstance(layer, nn.Conv2d):
                _ = layer.weight  # in training mode, this runs a power iteration
        self.discriminator.eval()

    def forward(self, output: Output) -> Terms:
        """The terms `gan` and `discriminator`."""
        fake, real = self._seen(output)
        judged_fake, judged_real = self.discriminator(torch.cat([fake.detach(), real])).chunk(2)
        terms = {"discriminator": self._discriminator_loss(judged_fake, judged_real)}
        if self.active:
            fixed = {name: p.detach() for name, p in self.discriminator.named_parameters()}
            judged = functional_call(self.discriminator, fixed, (fake,)).float()
            terms["gan"] = self.weight * self._model_loss(judged, judged_real.detach())
        return terms

    def _discriminator_loss(self, fake: Tensor, real: Tensor) -> Tensor:
        fake, real = fake.float(), real.float()
        if self.relativistic:
            return F.softplus(fake - real).mean()
        return (F.relu(1 + fake) + F.relu(1 - real)).mean() / 2

    def _model_loss(self, fake: Tensor, real: Tensor) -> Tensor:
        return F.softplus(real.float() - fake).mean() if self.relativistic else -fake.mean()

    def _seen(self, output: Output) -> tuple[Tensor, Tensor]:
        """What the discriminator sees of the output and of HR: (B, 3 * frames, h, w) each.

        A random frame or, of three, a random inner one with its neighbours.
        """
        count = output.sr.shape[1]
        rows, columns = draw_window(output.sr, self.window)
        clips = (output.sr.float(), output.target.float())
        if self.frames == 1 or count < 3 or output.to_prev is None or output.to_next is None:
            t = int(torch.randint(count, ()))
            sr, hr = (clip[:, t].repeat(1, self.frames, 1, 1) for clip in clips)
        else:
            t = 1 + int(torch.randint(count - 2, ()))
            width = output.sr.shape[-1]
            to_prev = enlarged_flow(output.to_prev[:, t - 1], width)
            to_next = enlarged_flow(output.to_next[:, t], width)
            sr, hr = (
                torch.cat(
                    [
                        warp(clip[:, t - 1], to_prev, padding="border"),
                        clip[:, t],
                        warp(clip[:, t + 1], to_next, padding="border"),
                    ],
                    1,
                )
                for clip in clips
            )
        return sr[..., rows, columns], hr[..., rows, columns]


class Discriminator(nn.Module):
    """A U-Net that judges every pixel, with spectral norm on all layers (Wang et al. 2021).

    Args:
        inputs: channels of the input.
        channels: of the first layer; at a half, a quarter and an eighth of the size two, four and
            four times as many.
    """

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        widths = (channels, 2 * channels, 4 * channels, 4 * channels)
        pairs = list(pairwise(widths))
        self.first = _conv(inputs, channels)
        self.down = nn.ModuleList(_conv(fine, coarse, stride=2) for fine, coarse in pairs)
        self.up = nn.ModuleList(_conv(coarse, fine) for fine, coarse in reversed(pairs))
        self.last = nn.Sequential(_conv(channels, channels), nn.LeakyReLU(0.2), _conv(channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) RGB in [0, 1] -> (N, 1, H, W); higher is more real."""
        x = F.leaky_relu(self.first(2 * x - 1), 0.2)
        skipped = []
        for down in self.down:
            skipped.append(x)
            x = F.leaky_relu(down(x), 0.2)
        for up in self.up:
            fine = skipped.pop()
            x = F.interpolate(x, fine.shape[-2:], mode="bilinear")
            x = F.leaky_relu(up(x), 0.2) + fine
        judged: Tensor = self.last(x)
        return judged


def _conv(inputs: int, outputs: int, *, stride: int = 1) -> nn.Module:
    size = 4 if stride == 2 else 3  # a multiple of the stride, so that all pixels count alike
    return spectral_norm(nn.Conv2d(inputs, outputs, size, stride, padding=1))


def load_discriminator(discriminator: Discriminator, path: Path) -> None:
    """Fill a discriminator from a file; raises ConfigError if it is of another one."""
    tensors: Mapping[str, Tensor] = read_checkpoint(path).tensors
    own = discriminator.state_dict()
    if {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in own.items()}:
        raise ConfigError(
            f"{path} is no discriminator with these discriminator_channels and gan_frames"
        )
    discriminator.load_state_dict(dict(tensors))
