"""Recipes for the published VSR-Transformer on Vimeo-90K: the released code and the paper.

    torchrun --nproc-per-node 8 -m vsrkit train recipes/vsrt_vimeo90k.py --set data_root=DIR

`DIR` is the folder with `sep_trainlist.txt`, usually called vimeo_septuplet. Seven frames, 2 clips
on each of 8 GPUs, six periods of 200,000 steps. `paper()` is the text: its network, 600,000 steps,
no reversal in time (docs/fidelity.md has a table). The data are the 64,612 septuplets of the list,
of which 64 are held out for validation.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """The options of the released code."""
    return TrainConfig(
        run_dir="runs/vsrt-vimeo",
        model="vsrt-vimeo",
        warm_start=("flow=basicvsr-reds4",),  # a trained SPyNet; the rest starts from new weights
        data=(Source(path="vimeo90k-train"),),  # validated on 64 septuplets of it
        steps=1_200_000,
        batch_size=2,
        frames=7,
        crop=64,
        loss_reduction="sum",
        optimizer="adam",
        learning_rate=2e-4,
        betas=(0.9, 0.99),
        schedule="restarts",
        periods=(200_000,) * 6,
        restart_weights=(1.0, 0.5, 0.5, 0.5, 0.5, 0.5),
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
        run_dir="runs/vsrt-vimeo-paper",
        model="vsrt-paper-vimeo",
        steps=600_000,
        reversal=False,  # the text lists flips and rotations only
    )
