"""Recipes for PSRT-recurrent on REDS and Vimeo-90K, with the options of its authors.

    torchrun --nproc-per-node 8 -m vsrkit train recipes/psrt.py --set data_root=REDS

One clip on each of 8 GPUs: 600,000 steps on 16 frames of REDS without REDS4 (000, 011, 015 and
020), or `vimeo90k()`, 300,000 steps on septuplets, each followed by its frames in reverse order.
The authors train the flow network at an eighth of the learning rate, which has no effect: features
move by whole pixels, so that it gets no gradient.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """REDS."""
    return TrainConfig(
        run_dir="runs/psrt-reds4",
        model="psrt-reds4",
        warm_start=("spynet=basicvsr-reds4",),  # a trained SPyNet; the rest starts from new weights
        data=(Source(path="reds-train"),),  # validated on REDS4
        steps=600_000,
        batch_size=1,
        frames=16,
        crop=64,
        reversal=False,
        optimizer="adam",
        learning_rate=2e-4,
        flow_learning_rate_scale=0.125,
        flow_frozen_steps=5000,
        betas=(0.9, 0.99),
        minimum_learning_rate=1e-7,
        ema_decay=0.999,
        activation_checkpointing=True,
        validate_every=5000,
        save_every=5000,
        log_every=100,
        workers=6,
    )


def vimeo90k() -> TrainConfig:
    """Vimeo-90K, LR frames by bicubic."""
    return replace(
        config(),
        run_dir="runs/psrt-vimeo90k",
        model="psrt-vimeo90k-bi",
        data=(Source(path="vimeo90k-train"),),  # validated on 64 septuplets of it
        steps=300_000,
        frames=7,
        mirrored=True,
        learning_rate=1e-4,
        flow_learning_rate_scale=0.25,
        flow_frozen_steps=0,
    )
