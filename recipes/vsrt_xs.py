"""Recipes for `vsrt-xs`, the forward-only model for streams: distilled from a trained BasicVSR.

    vsrkit weights get basicvsr-vimeo90k-bi
    vsrkit train recipes/vsrt_xs.py --set data=FOLDER
    vsrkit train recipes/vsrt_xs.py:polished --set data=FOLDER \
        --set warm_start=runs/vsrt-xs/best.safetensors

Without a teacher (`--set teacher=`) the target is HR.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """Three clips of 10 frames of 56x56, so that the state is carried: 0.5 s per step."""
    return TrainConfig(
        run_dir="runs/vsrt-xs",
        model="vsrt-xs",
        warm_start=("flow=vsrt-s",),
        teacher="basicvsr-vimeo90k-bi",
        teacher_mode="frames",
        teacher_hr_share=0.3,
        data=(Source(path="data/clips"),),
        loss="psnr",
        steps=8000,
        batch_size=3,
        frames=10,
        crop=56,
        optimizer="muon",
        learning_rate=1.5e-3,
        flow_learning_rate_scale=0.05,
        schedule="linear",
        warmup_steps=100,
        clip_gradients=10.0,
        ema_decay=0.99,
        validate_every=250,
        validation_frames=17,
        validation_crop=96,
        save_every=250,
    )


def polished() -> TrainConfig:
    """From `config` weights: with steadiness, and one clip in four compressed."""
    return replace(
        config(),
        run_dir="runs/vsrt-xs-polished",
        degradation="bi+bi+bi+crf18-30",
        steadiness=1.0,
        steps=4000,
        learning_rate=4e-4,
    )
