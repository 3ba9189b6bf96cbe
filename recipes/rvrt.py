"""Recipes for RVRT on REDS and Vimeo-90K, with the options of its authors in KAIR.

    torchrun --nproc-per-node 8 -m vsrkit train recipes/rvrt.py --set data_root=REDS

One clip on each of 8 GPUs: 600,000 steps on 30 frames of REDS without REDS4 (000, 011, 015 and
020), or `vimeo90k()`, 300,000 steps on septuplets, each followed by its frames in reverse order,
from the weights of the first.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """REDS."""
    return TrainConfig(
        run_dir="runs/rvrt-reds4",
        model="rvrt-reds4",
        warm_start=("spynet=basicvsr-reds4",),  # a trained SPyNet; the rest starts from new weights
        data=(Source(path="reds-train"),),  # validated on REDS4
        steps=600_000,
        batch_size=1,
        frames=30,
        crop=64,
        reversal=False,
        optimizer="adam",
        learning_rate=4e-4,
        flow_learning_rate_scale=0.25,
        flow_frozen_steps=30_000,
        betas=(0.9, 0.99),
        minimum_learning_rate=1e-7,
        activation_checkpointing=True,
        validate_every=5000,
        save_every=5000,
        log_every=200,
        workers=4,
    )


def vimeo90k() -> TrainConfig:
    """Vimeo-90K, LR frames by bicubic; `--set degradation=bd` for blur and subsampling."""
    return replace(
        config(),
        run_dir="runs/rvrt-vimeo90k",
        model="rvrt-vimeo90k-bi",
        warm_start=("runs/rvrt-reds4/best.safetensors",),
        data=(Source(path="vimeo90k-train"),),  # validated on 64 septuplets of it
        steps=300_000,
        frames=7,
        mirrored=True,
        reversal=True,
        learning_rate=2e-4,
        flow_frozen_steps=0,
    )
