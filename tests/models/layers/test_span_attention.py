"""Bounded attention: its span, independence of the block size, and borders."""

import pytest
import torch

from vsrkit.models.layers import span_attention
from vsrkit.models.layers.span_attention import SpanAttention


@pytest.fixture
def attention():
    torch.manual_seed(0)
    layer = SpanAttention(6, 8, heads=2, patch=4, span=2, reach=1).eval()
    torch.nn.init.normal_(layer.out.weight, std=0.3)
    torch.nn.init.normal_(layer.distance)
    return layer


def attend(layer, frames):
    projected = [layer.project(x) for x in frames]
    near = dict(zip((-1, 0, 1), projected, strict=True))
    with torch.no_grad():
        return layer(projected[1], near)


def naive(layer, frames):
    """The same attention in loops over patches."""
    p, s, heads = layer.patch, layer.span, layer.heads
    qkv = [layer.to_qkv(x)[0] for x in frames]
    width = qkv[0].shape[0] // 3 // heads
    h, w = frames[0].shape[-2:]
    out = torch.zeros(width * heads, h, w)
    for head in range(heads):
        shift = head * p // heads
        rows, columns = -(-(h + shift) // p), -(-(w + shift) // p)

        def patch(x, i, j, shift=shift):
            canvas = torch.zeros(x.shape[0], (i + 2) * p + h, (j + 2) * p + w)
            canvas[:, shift : shift + h, shift : shift + w] = x
            return canvas[:, i * p : (i + 1) * p, j * p : (j + 1) * p].flatten()

        def part(frame, which, head=head):
            start = which * width * heads + head * width
            return qkv[frame][start : start + width]

        for i in range(rows):
            for j in range(columns):
                query = patch(part(1, 0), i, j) * (width * p * p) ** -0.5
                scores, values = [], []
                for frame in range(3):
                    for y in range(max(0, i - s), min(rows, i + s + 1)):
                        for x in range(max(0, j - s), min(columns, j + s + 1)):
                            place = (y - i + s) * (2 * s + 1) + x - j + s
                            bias = layer.distance[head, frame, place]
                            scores.append(query @ patch(part(frame, 1), y, x) + bias)
                            values.append(patch(part(frame, 2), y, x))
                mixed = torch.stack(scores).softmax(0) @ torch.stack(values)
                mixed = mixed.view(width, p, p)
                for a in range(p):
                    for b in range(p):
                        r, c = i * p + a - shift, j * p + b - shift
                        if 0 <= r < h and 0 <= c < w:
                            out[head * width : (head + 1) * width, r, c] = mixed[:, a, b]
    return layer.out(out[None])


@pytest.mark.parametrize("size", [(16, 16), (21, 38)])
def test_it_equals_attention_patch_by_patch(attention, size):
    frames = [torch.randn(1, 6, *size) for _ in range(3)]
    with torch.no_grad():
        wanted = naive(attention, frames)
    torch.testing.assert_close(attend(attention, frames), wanted, atol=1e-5, rtol=0)


def test_the_size_of_blocks_does_not_change_the_result(attention, monkeypatch):
    frames = [torch.randn(1, 6, 40, 52) for _ in range(3)]
    wanted = attend(attention, frames)
    monkeypatch.setattr(span_attention, "BLOCK", 3)
    other = SpanAttention(6, 8, heads=2, patch=4, span=2, reach=1).eval()
    other.load_state_dict(attention.state_dict())
    torch.testing.assert_close(attend(other, frames), wanted, atol=1e-5, rtol=0)


def test_pixels_outside_of_the_span_have_no_effect(attention):
    """The span is two patches in each direction: 8 + 4 + 1 pixels with the convolutions."""
    frames = [torch.randn(1, 6, 64, 64) for _ in range(3)]
    before = attend(attention, frames)
    frames[0] = frames[0].clone()
    frames[0][..., 32, 32] += 5
    changed = (attend(attention, frames) - before).abs().amax((0, 1)) > 0
    rows = changed.any(1).nonzero()
    assert 0 < rows.max() - rows.min() <= 2 * (2 * 4 + 4 + 2)
    assert changed[32, 32]


def test_missing_frames_are_left_out_not_padded(attention):
    """One frame alone: constant features are returned without an effect of padding."""
    x = torch.randn(1, 6, 1, 1).expand(1, 6, 24, 24)
    own = attention.project(x)
    value = attention.to_qkv(x).chunk(3, 1)[2]
    inner = slice(4, -4)  # the projection pads with zeros at the border
    attention.out = torch.nn.Identity()
    with torch.no_grad():
        alone = attention(own, {0: own})
    torch.testing.assert_close(alone[..., 12, 12], value[..., 12, 12])
    assert alone[..., inner, inner].isfinite().all()


def test_the_initial_output_is_zero():
    layer = SpanAttention(6, 8, heads=2, patch=4, span=2, reach=1)
    x = torch.randn(1, 6, 16, 16)
    own = layer.project(x)
    assert not layer(own, {0: own}).any()


def test_patch_borders_are_not_visible():
    """The output of attention has the same energy on patch borders as between them."""
    torch.manual_seed(0)
    layer = SpanAttention(32, 16, heads=2, patch=4, span=2, reach=1).eval()
    torch.nn.init.normal_(layer.out.weight, std=0.1)
    torch.nn.init.normal_(layer.distance)
    energy = torch.zeros(2, 4)
    for _ in range(6):
        added = attend(layer, [torch.randn(1, 32, 112, 112) for _ in range(3)])[..., 8:-8, 8:-8]
        square = added.square().mean((0, 1))
        energy[0] += square.mean(0).view(-1, 4).mean(0)  # by column, modulo the patch
        energy[1] += square.mean(1).view(-1, 4).mean(0)  # by row
    relative = energy / energy.mean(1, keepdim=True)
    # Six noise frames leave about 1 % of chance; a grid that shows has tens of percent.
    assert (relative - 1).abs().max() < 0.04
