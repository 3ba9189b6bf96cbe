"""The plain Transformer block that the paper argues against: fully connected, token by token."""

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn


def attention_weights(q: Tensor, k: Tensor, scaled: bool) -> Tensor:
    """Softmax over keys of the similarity: (..., N, d) and (..., M, d) -> (..., N, M)."""
    scale = q.shape[-1] ** -0.5 if scaled else 1.0
    return (q * scale @ k.transpose(-1, -2)).softmax(-1)


class LinearAttention(nn.Module):
    """The plain Transformer's attention: fully connected projections of each patch."""

    def __init__(
        self, channels: int, *, patch: int, width: int, heads: int = 1, scaled: bool = True
    ) -> None:
        super().__init__()
        self.patch, self.heads, self.scaled = patch, heads, scaled
        token = channels * patch**2
        self.to_q, self.to_k, self.to_v = (
            nn.Linear(token, width * heads, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(width * heads, token, bias=False)

    def forward(self, x: Tensor, keep: slice) -> Tensor:
        """(B, T, C, H, W) -> the frames in `keep`."""
        y = self.weights(x, keep) @ self._heads(self.to_v, x)
        y = rearrange(y, "b g n d -> b n (g d)")
        t, h, p = x[:, keep].shape[1], x.shape[-2], self.patch
        return rearrange(
            self.out(y), "b (t i j) (c p q) -> b t c (i p) (j q)", t=t, i=h // p, p=p, q=p
        )

    def weights(self, x: Tensor, keep: slice) -> Tensor:
        """How much each patch of the frames in `keep` looks at each of all: (B, heads, N, M)."""
        return attention_weights(
            self._heads(self.to_q, x[:, keep]), self._heads(self.to_k, x), self.scaled
        )

    def _heads(self, layer: nn.Module, x: Tensor) -> Tensor:
        """A layer's answer for each patch: (B, T, C, H, W) -> (B, heads, N, d)."""
        p = self.patch
        tokens = rearrange(x, "b t c (i p) (j q) -> b (t i j) (c p q)", p=p, q=p)
        return rearrange(layer(tokens), "b n (g d) -> b g n d", g=self.heads)


class TokenFeedForward(nn.Module):
    """The plain Transformer's feed-forward: two linear layers on each patch by itself."""

    def __init__(self, channels: int, *, patch: int, width: int) -> None:
        super().__init__()
        self.patch = patch
        token = channels * patch**2
        self.inner = nn.Linear(token, width)
        self.outer = nn.Linear(width, token)

    def forward(
        self, x: Tensor, lr: Tensor, flows: tuple[Tensor, Tensor] | None, keep: slice
    ) -> Tensor:
        """(B, T, C, H, W) -> the frames in `keep`; frames and flows are not looked at."""
        p = self.patch
        tokens = rearrange(x[:, keep], "b t c (i p) (j q) -> b t i j (c p q)", p=p, q=p)
        y = self.outer(F.relu(self.inner(tokens)))
        return rearrange(y, "b t i j (c p q) -> b t c (i p) (j q)", p=p, q=p)
