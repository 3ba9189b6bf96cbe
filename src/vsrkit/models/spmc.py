"""SPMC (Tao et al., 2017): frames splatted onto the HR grid, joined by a recurrent network.

The authors published frozen graphs only. This follows the paper; docs/zoo.md lists the guesses.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow, Switch
from vsrkit.models.layers.blocks import check_frames, conv3x3
from vsrkit.models.spec import Spec, Window, check_size
from vsrkit.models.vespcn import Motion, enlarge_luma, rgb_to_ycbcr


@dataclass(frozen=True, slots=True, kw_only=True)
class SPMCConfig:
    """`frames` is 3, 5 or 7 in the paper; no tensor's shape depends on it."""

    channels: int = 32
    frames: int = 3


class SPMC(nn.Module):
    """Motion, sub-pixel motion compensation, encoder, ConvLSTM over the window, decoder."""

    def __init__(self, config: SPMCConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Window(config.frames), multiple=4)
        c = config.channels
        self.motion = Motion(1)
        self.enc1 = nn.Conv2d(1, c, 5, padding=2)
        self.enc2a, self.enc2b = conv3x3(c, 2 * c, stride=2), conv3x3(2 * c, 2 * c)
        self.enc3 = conv3x3(2 * c, 4 * c, stride=2)
        self.lstm = conv3x3(8 * c, 16 * c)
        self.dec3 = conv3x3(4 * c, 4 * c)
        self.up3 = nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1)
        self.dec2 = conv3x3(2 * c, 2 * c)
        self.up2 = nn.ConvTranspose2d(2 * c, c, 4, 2, 1)
        self.dec1 = conv3x3(c, c)
        self.out = nn.Conv2d(c, 1, 5, padding=2)

    @property
    def anatomy(self) -> Anatomy:
        """Flow from every neighbour to the centre, along which its pixels are splatted."""
        flow = Flow(between=self._flow_between, targets="from window")
        return Anatomy(flow=flow, switches=(Switch.flow("motion"),))

    def _flow_between(self, a: Tensor, b: Tensor) -> Tensor:
        return self.motion.padded(rgb_to_ycbcr(a)[:, :1], rgb_to_ycbcr(b)[:, :1])

    def forward(self, clip: Tensor) -> Tensor:
        """(B, T, 3, H, W) -> (B, 1, 3, 4H, 4W): the centre frame."""
        check_frames(clip, self.config.frames)
        check_size(clip, self.spec)
        return enlarge_luma(clip, lambda y: self.estimates(y)[:, -1])

    def estimates(self, clip: Tensor) -> Tensor:
        """The centre after each frame: luma (B, T, 1, H, W) -> (B, T, 1, 4H, 4W).

        The last estimate, from all frames, is the output; the paper trains on all of them.
        """
        b, t, _, h, w = clip.shape
        centre = clip[:, t // 2]
        base = F.interpolate(centre, scale_factor=4, mode="bicubic", align_corners=False)
        hidden = cell = clip.new_zeros(b, 4 * self.config.channels, h, w)
        results = []
        for frame in clip.unbind(1):
            x = splat(frame, self.motion(frame, centre), 4)
            full = F.relu(self.enc1(x))
            half = F.relu(self.enc2b(F.relu(self.enc2a(full))))
            hidden, cell = self._lstm_step(F.relu(self.enc3(half)), hidden, cell)
            y = F.relu(self.up3(F.relu(self.dec3(hidden))))
            y = F.relu(self.up2(F.relu(self.dec2(y + half))))
            results.append(self.out(F.relu(self.dec1(y + full))) + base)
        return torch.stack(results, 1)

    def _lstm_step(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the ConvLSTM: the next hidden and cell state."""
        enter, new, forget, show = self.lstm(torch.cat([x, hidden], 1)).chunk(4, 1)
        cell = cell * (forget + 1).sigmoid() + enter.sigmoid() * new.tanh()
        return cell.tanh() * show.sigmoid(), cell


def splat(frame: Tensor, flow: Tensor, scale: int) -> Tensor:
    """Forward warp onto a grid `scale` times as fine.

    frame: (B, C, H, W)
    flow:  (B, 2, H, W) in pixels of the frame, channel 0 = u (right), channel 1 = v (down)

    A pixel is distributed over the four pixels around its target by bilinear weights, without
    normalisation; targets outside are dropped. Differentiable in both. Returns (B, C, sH, sW).
    """
    b, c, h, w = frame.shape
    u, v = flow.float().unbind(1)
    x = (torch.arange(w, device=flow.device) + u) * scale
    y = (torch.arange(h, device=flow.device)[:, None] + v) * scale
    left, top = x.detach().floor(), y.detach().floor()
    total = frame.new_zeros(b, c, scale * h * scale * w, dtype=torch.float32)
    for row in (top, top + 1):
        for column in (left, left + 1):
            share = (1 - (x - column).abs()) * (1 - (y - row).abs())
            inside = (column >= 0) & (column < scale * w) & (row >= 0) & (row < scale * h)
            place = torch.where(inside, row * scale * w + column, 0).long()
            value = frame.float() * torch.where(inside, share, 0)[:, None]
            index = place.flatten(1)[:, None].expand(b, c, h * w)
            total = total.scatter_add(2, index, value.flatten(2))
    return total.view(b, c, scale * h, scale * w).to(frame.dtype)


# There are no public weight files that can be loaded.


def detect(tensors: Mapping[str, Tensor]) -> SPMCConfig | None:
    """The configuration of a state dict; None if it is not SPMC."""
    first = tensors.get("enc1.weight")
    if first is None or "lstm.weight" not in tensors:
        return None
    return SPMCConfig(channels=first.shape[0])
