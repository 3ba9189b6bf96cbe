"""Recipes for `vsrt-m`, the larger model: narrowed and distilled from a trained BasicVSR.

    vsrkit weights get basicvsr-vimeo90k-bi
    vsrkit train recipes/vsrt_m.py --set data=FOLDER

The second run trains on the teacher's frames and HR, with steadiness and with the flow network:

    vsrkit train recipes/vsrt_m.py:polished --set data=FOLDER \
        --set warm_start=runs/vsrt-m/best.safetensors
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """Batches of three clips of 8 frames of 48x48: about 6 s per step on one core."""
    return TrainConfig(
        run_dir="runs/vsrt-m",
        model="vsrt-m",
        teacher="basicvsr-vimeo90k-bi",
        teacher_mode="features",
        teacher_weight=0.3,
        distinct_clips=480,
        data=(Source(path="data/clips"),),
        steps=1500,
        batch_size=3,
        frames=8,
        crop=48,
        optimizer="muon",
        learning_rate=1.5e-4,
        flow_learning_rate_scale=0.0,  # Muon would amplify the noise of its gradient
        schedule="linear",
        warmup_steps=40,
        clip_gradients=2.0,
        ema_decay=0.98,
        validate_every=100,
        validation_crop=96,
        save_every=100,
    )


def polished() -> TrainConfig:
    """From `config` weights: 0.7 teacher frames and 0.3 HR as target, with steadiness and flow."""
    return replace(
        config(),
        run_dir="runs/vsrt-m-polished",
        warm_start=("vsrt-m",),
        teacher_mode="frames",
        teacher_hr_share=0.3,
        distinct_clips=0,
        loss="psnr",
        steadiness=1.6,
        batch_size=4,
        frames=10,
        steps=350,
        learning_rate=2e-4,
        flow_learning_rate_scale=0.05,
        clip_gradients=10.0,
        ema_decay=0.99,
        validation_frames=17,
    )
