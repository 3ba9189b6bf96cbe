"""A recipe for AnimeSR, with the settings of the first stage of its authors' options.

    torchrun --nproc-per-node 4 -m vsrkit train recipes/animesr.py --set data=CARTOONS

300,000 steps on 15 frames, 4 clips on each GPU, a constant learning rate, averaged weights. The
authors use the L1 loss (here: Charbonnier, which is the same but for differences around zero) on
HR frames sharpened by an unsharp mask, which this training does not do. Their later stages need
learnt degradations, perceptual and adversarial losses, which do not exist here: expect smoother
lines than with the published weights.
"""

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """Stage 1."""
    return TrainConfig(
        run_dir="runs/animesr",
        model="animesr-v2",
        data=(Source(path="data/cartoons"),),
        degradation="realistic",
        validation_share=0.02,
        steps=300_000,
        batch_size=4,
        frames=15,
        crop=64,
        optimizer="adam",
        learning_rate=2e-4,
        betas=(0.9, 0.99),
        schedule="constant",
        ema_decay=0.999,
        precision="float32",
        validate_every=5000,
        save_every=5000,
        log_every=100,
        workers=6,
    )
