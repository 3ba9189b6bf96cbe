"""Recipes for the published VSR-Transformer on REDS: the released code and the paper's text.

    torchrun --nproc-per-node 8 -m vsrkit train recipes/vsrt_reds.py --set data_root=REDS

The two differ (docs/fidelity.md has a table). `config()` is the released code: 1,200,000 steps, 4
clips on each of 8 GPUs. `paper()` is the text: its network, 600,000 steps, 2 clips on each GPU, no
reversal in time. Both give the same four periods, which add up to 1,200,000, so that the paper's
run ends after two of them. `REDS` is the folder with `train_sharp` and `val_sharp`: their 270
clips without REDS4 (000, 011, 015 and 020 of train), on which the run is validated.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """The options of the released code."""
    return TrainConfig(
        run_dir="runs/vsrt-reds",
        model="vsrt-reds",
        warm_start=("flow=basicvsr-reds4",),  # a trained SPyNet; the rest starts from new weights
        data=(Source(path="reds-train"),),  # validated on REDS4
        steps=1_200_000,
        batch_size=4,
        frames=5,
        crop=64,
        loss_reduction="sum",
        optimizer="adam",
        learning_rate=2e-4,
        betas=(0.9, 0.99),
        schedule="restarts",
        periods=(300_000,) * 4,
        restart_weights=(1.0, 0.5, 0.5, 0.5),
        minimum_learning_rate=1e-7,
        precision="float32",
        seed=10,
        validate_every=5000,
        save_every=5000,
        log_every=100,
        workers=3,
    )


def paper() -> TrainConfig:
    """The options in the text of the paper."""
    return replace(
        config(),
        run_dir="runs/vsrt-reds-paper",
        model="vsrt-paper",
        steps=600_000,
        batch_size=2,
        reversal=False,  # the text lists flips and rotations only
    )
