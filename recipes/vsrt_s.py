"""Recipes for `vsrt-s`, the small model: trained on HR, or distilled from a trained BasicVSR.

    vsrkit train recipes/vsrt_s.py --set data=FOLDER --set warm_start=vsrt-s

The weights in the package are distilled, in two runs:

    vsrkit weights get basicvsr-vimeo90k-bi
    vsrkit train recipes/vsrt_s.py:taught --set data=FOLDER
    vsrkit train recipes/vsrt_s.py:polished --set data=FOLDER \
        --set warm_start=runs/vsrt-s/best.safetensors
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """Train on HR: batches of three clips of 7 frames of 48x48, about 1 s per step on two cores."""
    return TrainConfig(
        run_dir="runs/vsrt-s",
        model="vsrt-s",
        data=(Source(path="data/clips"),),
        steps=1800,
        batch_size=3,
        frames=7,
        crop=48,
        optimizer="muon",
        learning_rate=1e-3,
        flow_learning_rate_scale=0.0,  # Muon would amplify the noise of its gradient
        minimum_learning_rate=1e-6,
        warmup_steps=100,
        clip_gradients=0.5,
        ema_decay=0.998,
        validate_every=200,
        save_every=200,
    )


def taught() -> TrainConfig:
    """Narrow BasicVSR, then learn its features and frames of 480 crops of eight frames."""
    return replace(
        config(),
        teacher="basicvsr-vimeo90k-bi",
        teacher_mode="features",
        teacher_weight=0.3,
        distinct_clips=480,
        batch_size=4,
        frames=8,
        learning_rate=8e-4,
        schedule="linear",
        warmup_steps=40,
        clip_gradients=2.0,
        ema_decay=0.995,
        validate_every=100,
        validation_crop=96,
        save_every=100,
    )


def polished() -> TrainConfig:
    """From `taught` weights: 0.7 teacher frames and 0.3 HR as target, with steadiness and flow."""
    return replace(
        taught(),
        run_dir="runs/vsrt-s-polished",
        warm_start=("vsrt-s",),
        teacher_mode="frames",
        teacher_hr_share=0.3,
        distinct_clips=0,
        loss="psnr",
        steadiness=2.0,
        batch_size=4,
        frames=10,
        steps=920,
        learning_rate=3e-4,
        flow_learning_rate_scale=0.05,
        warmup_steps=40,
        clip_gradients=10.0,
        ema_decay=0.99,
        validation_frames=17,
    )
