from pathlib import Path

import numpy as np
import pytest
import torch

from vsrkit.train.losses import charbonnier

GOLDEN = np.load(Path(__file__).parent.parent / "golden" / "charbonnier.npz")


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_charbonnier_equals_the_release(reduction):
    a, b = (torch.from_numpy(GOLDEN[name]) for name in "ab")
    # float32 sums of this many numbers, added up in another order
    assert float(charbonnier(a, b, reduction=reduction)) == pytest.approx(
        float(GOLDEN[reduction]), rel=1e-6
    )
