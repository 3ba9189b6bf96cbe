"""A model `soft` and its companion `sharp` with other weights, both installed in the cache."""

import torch

from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.zoo import MODELS, Entry, save_model

SMALL = RRNConfig(channels=8, blocks=1)


def install_pair(monkeypatch, cache, *, sharp=True):
    """Add both to the table of models and write their weights; without `sharp`, only one file."""
    monkeypatch.setenv("VSRKIT_CACHE", str(cache))
    (cache / "weights").mkdir(parents=True)
    for seed, name, sharper in ((0, "soft", "sharp"), (1, "sharp", "")):
        monkeypatch.setitem(MODELS, name, Entry("rrn", SMALL, name, sharper=sharper))
        torch.manual_seed(seed)
        if sharp or name == "soft":
            save_model(cache / "weights" / f"{name}.safetensors", RRN(SMALL), half=True)
