"""Convolutions are found again, and from fewer channels as well as can be."""

import torch
from torch import nn

from vsrkit.train.distill.least_squares import eliminate, fit, sums_of


def test_a_convolution_is_found_again_from_what_it_answers():
    torch.manual_seed(0)
    conv, x = nn.Conv2d(5, 4, 3, padding=1), torch.randn(4, 5, 20, 20)
    with torch.no_grad():
        sums = sums_of(x, conv(x), 4000)
        found = fit(sums, list(range(5)))
    # Damped a little on purpose: 1e-4 of the mean square.
    torch.testing.assert_close(found.weight, conv.weight.data, atol=1e-3, rtol=0)
    torch.testing.assert_close(found.bias, conv.bias.data, atol=1e-3, rtol=0)
    assert found.error < 1e-3 * sums.square


def test_what_others_can_make_up_for_goes_first():
    torch.manual_seed(0)
    x = torch.randn(4, 6, 20, 20)
    x[:, 5] = 2 * x[:, 0]  # tells nothing new
    conv = nn.Conv2d(6, 4, 3, padding=1)
    with torch.no_grad():
        conv.weight[:, 3] *= 1e-3  # hardly matters
        fits = eliminate(sums_of(x, conv(x), 4000), [6, 5, 4, 3])
    assert 3 not in fits[4].channels
    assert len({0, 5} & set(fits[4].channels)) == 1
    assert fits[4].error < 0.01 * fits[3].error
    errors = [fits[size].error for size in (6, 5, 4, 3)]
    assert errors == sorted(errors)
