"""Swin blocks: equal to attention written out token by token, in pieces of any size."""

import pytest
import torch
from torch import Tensor

from vsrkit.models.layers import swin
from vsrkit.models.layers.swin import SwinBlock, cut_windows, join_windows


def with_position_index(shapes, window, frames):
    """Shapes of public tensors, with the constant index beside each table of distances."""
    added = {}
    for name, shape in shapes.items():
        if name.endswith("relative_position_bias_table"):
            depth = (shape[0] // (2 * window - 1) ** 2 + 1) // 2
            assert depth in (1, frames)
            tokens = depth * window**2
            added[name.replace("bias_table", "index")] = (tokens, tokens)
    return {**shapes, **added}


def block(*, shifted: bool, window=(2, 4, 4)) -> SwinBlock:
    torch.manual_seed(0)
    made = SwinBlock(8, 2, window, shifted=shifted).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return made


def plainly(made: SwinBlock, x: Tensor) -> Tensor:
    """Attention of each token to each token of its window, decided by comparing positions."""
    n, d, h, w, c = x.shape
    (_, wh, ww), (sh, sw) = made.layout(x.shape[1:4])
    padded = torch.zeros(n, d, -(-h // wh) * wh, -(-w // ww) * ww, c)
    padded[:, :, :h, :w] = made.norm1(x)
    ph, pw = padded.shape[2:4]
    layer = made.attention
    q, k, v = layer.qkv(padded).chunk(3, -1)
    out = torch.zeros_like(padded)
    places = [(t, i, j) for t in range(d) for i in range(ph) for j in range(pw)]

    def cell(i, j):  # the window, after the shift
        return ((i - sh) % ph) // wh, ((j - sw) % pw) // ww

    size = made.window
    for t, i, j in places:
        near = [p for p in places if cell(*p[1:]) == cell(i, j)]
        for head in range(layer.heads):
            part = slice(head * c // layer.heads, (head + 1) * c // layer.heads)
            similar = []
            for other in near:
                # Distances inside the shifted window, where columns of both sides may meet.
                di = (i - sh) % ph - (other[1] - sh) % ph
                dj = (j - sw) % pw - (other[2] - sw) % pw
                row = (t - other[0] + size[0] - 1) * (2 * size[1] - 1) + di + size[1] - 1
                row = row * (2 * size[2] - 1) + dj + size[2] - 1
                value = (q[:, t, i, j, part] * k[:, other[0], other[1], other[2], part]).sum(-1)
                value = value * (c // layer.heads) ** -0.5 + layer.bias_table[row, head]
                wrapped = (i < sh) != (other[1] < sh) or (j < sw) != (other[2] < sw)
                touches = cell(i, j)
                edge = touches[0] == ph // wh - 1 or touches[1] == pw // ww - 1
                similar.append(value - 100 * (wrapped and edge))
            weights = torch.stack(similar, -1).softmax(-1)
            values = torch.stack([v[:, a, b, e, part] for a, b, e in near], -2)
            out[:, t, i, j, part] = (weights[..., None] * values).sum(-2)
    x = x + layer.proj(out)[:, :, :h, :w]
    return x + made.mlp(made.norm2(x))


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("size", [(2, 8, 8), (2, 7, 5), (2, 4, 9), (2, 3, 6)])
def test_a_block_equals_attention_written_out(size, shifted):
    made, x = block(shifted=shifted), torch.randn(2, *size, 8)
    with torch.no_grad():
        # float32 sums in another order
        torch.testing.assert_close(made(x), plainly(made, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("shifted", [False, True])
def test_memory_is_bounded_without_a_change_of_the_output(monkeypatch, shifted):
    made, x = block(shifted=shifted), torch.randn(1, 2, 19, 18, 8)
    largest = []
    made.attention.register_forward_hook(lambda _, args, out: largest.append(out.numel()))
    with torch.no_grad():
        whole = made(x)
        at_once = max(largest)
        monkeypatch.setattr(swin, "CHUNK", 1)
        largest.clear()
        # Matrix products of other sizes may sum in another order.
        torch.testing.assert_close(made(x), whole, rtol=0, atol=1e-5)
    assert max(largest) < at_once / 2


def test_training_after_inference():
    swin.distance_index.cache_clear()
    swin.wrapped_apart.cache_clear()
    made, x = block(shifted=True), torch.randn(1, 2, 8, 8, 8)
    with torch.inference_mode():
        made(x)
    made(x).sum().backward()
    assert made.attention.bias_table.grad.any()


def test_windows_cut_and_joined_are_the_same():
    x = torch.rand(2, 2, 8, 12, 3)
    windows = cut_windows(x, (2, 4, 4))
    assert windows.shape == (12, 32, 3)
    assert torch.equal(windows[1].view(2, 4, 4, 3), x[0, :, :4, 4:8])
    assert torch.equal(join_windows(windows, (2, 4, 4), x.shape), x)


def test_weights_of_one_pixel_sum_to_one_and_explain_the_output():
    made, x = block(shifted=False), torch.randn(1, 2, 6, 7, 8)
    with torch.no_grad():
        weights, top, left = made.weights(x, 1, 5, 6)
    assert (weights.shape, top, left) == ((2, 2, 4, 4), 4, 4)
    torch.testing.assert_close(weights.sum((1, 2, 3)), torch.ones(2))
    with pytest.raises(AssertionError):
        block(shifted=True).weights(x, 0, 0, 0)


def test_heads_must_divide_the_channels():
    with pytest.raises(ValueError, match="8 channels cannot be divided among 3 heads"):
        SwinBlock(8, 3, (1, 4, 4), shifted=False)
