"""Recipe for `vsrt-s-vivid`: `vsrt-s-web` trained further to look sharp.

    vsrkit weights get lpips
    vsrkit train recipes/vsrt_s_vivid.py --set data=FOLDER
    vsrkit train recipes/vsrt_s_vivid.py:finished --set data=FOLDER

The first run finds details, with some outlines and patterns that footage does not have. The second
one continues from its weights and removes most of them; its result is `refitted.safetensors`.
docs/models/vsrt-s-vivid.md has the history of the weights in the package.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.settings import Losses


def config() -> TrainConfig:
    """Perceptual and adversarial losses on HR; three of four clips are compressed.

    The gradients of the terms for the weights differ by factors of a hundred: these weights bring
    all but `pixel` and `colour` to a similar size.
    """
    return TrainConfig(
        run_dir="runs/vsrt-s-vivid",
        model="vsrt-s",
        warm_start=("vsrt-s-web",),
        data=(Source(path="data/clips"),),
        degradation="bi+crf15-35+crf20-30+crf20-30",
        losses=Losses(
            pixel=2.0,
            perceptual=0.5,
            gan=0.5,
            steadiness=5.0,
            grid=0.04,
            colour=2.0,
            window=128,
            gan_frames=3,
            gan_from=60,
            discriminator_learning_rate=3e-4,
        ),
        steps=3000,
        batch_size=3,
        frames=5,
        crop=48,
        reversal=False,  # encoders work forwards
        optimizer="muon",
        learning_rate=3e-4,
        flow_learning_rate_scale=0.0,
        schedule="linear",
        warmup_steps=20,
        clip_gradients=1.0,
        ema_decay=0.995,
        validation_metric="lpips",
        validate_every=300,
        validation_crop=88,
        save_every=100,
    )


def finished() -> TrainConfig:
    """From the weights of the first run: smaller steps, a weaker `gan`, less power in excess."""
    first = config()
    return replace(
        first,
        run_dir="runs/vsrt-s-vivid-finished",
        warm_start=("runs/vsrt-s-vivid/last.safetensors",),
        losses=replace(
            first.losses,
            gan=0.3,
            steadiness=6.0,
            spectrum=0.04,
            colour=10.0,
            gan_from=0,
            discriminator_learning_rate=2e-4,
            discriminator="runs/vsrt-s-vivid/discriminator.safetensors",
        ),
        steps=900,
        learning_rate=1.5e-4,
        refit="bi+crf18-32+crf18-32+crf18-32",
        refit_goal="no-grid",
    )
