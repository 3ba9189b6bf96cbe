"""Recipes for BasicVSR++ on REDS and Vimeo-90K, with the settings of its authors in mmagic.

    torchrun --nproc-per-node 8 -m vsrkit train recipes/basicvsrpp.py --set data_root=REDS

`REDS` is the folder with `train_sharp` and `val_sharp`. One clip on each of 8 GPUs: 600,000 steps
on 30 frames of REDS without REDS4, or `vimeo90k()`, 300,000 steps on septuplets, each followed by
its frames in reverse order.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """REDS."""
    return TrainConfig(
        run_dir="runs/basicvsrpp-reds4",
        model="basicvsrpp-reds4",
        warm_start=("spynet=basicvsr-reds4",),  # a trained SPyNet; the rest starts from new weights
        data=(Source(path="reds-train"),),  # validated on REDS4
        steps=600_000,
        batch_size=1,
        frames=30,
        crop=64,
        optimizer="adam",
        learning_rate=1e-4,
        flow_learning_rate_scale=0.25,
        flow_frozen_steps=5000,
        betas=(0.9, 0.99),
        minimum_learning_rate=1e-7,
        precision="float32",
        validate_every=5000,
        save_every=5000,
        log_every=100,
        workers=6,
    )


def vimeo90k() -> TrainConfig:
    """Vimeo-90K, LR frames by bicubic; `--set degradation=bd` for blur and subsampling."""
    return replace(
        config(),
        run_dir="runs/basicvsrpp-vimeo90k",
        model="basicvsrpp-vimeo90k-bi",
        data=(Source(path="vimeo90k-train"),),  # validated on 64 septuplets of it
        steps=300_000,
        frames=7,
        mirrored=True,
        flow_frozen_steps=0,
    )
