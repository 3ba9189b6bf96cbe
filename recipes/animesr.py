"""Recipes for AnimeSR, with the settings of the first stage of its authors' options.

    torchrun --nproc-per-node 4 -m vsrkit train recipes/animesr.py --set data=CARTOONS
    vsrkit weights get lpips
    torchrun --nproc-per-node 4 -m vsrkit train recipes/animesr.py:perceptual --set data=CARTOONS

300,000 steps on 15 frames, 4 clips on each GPU, a constant learning rate, averaged weights. The
authors use the L1 loss (here: Charbonnier, which is the same but for differences around zero) on
HR frames sharpened by an unsharp mask, which this training does not do.

`perceptual` is the second half of that stage: 300,000 more steps with perceptual and adversarial
losses. The authors use VGG19, three discriminators at different sizes and a least-squares loss with
weight 1; here VGG16, one U-Net and a relativistic loss with weight 0.1. Their later stages need
learnt degradations, which do not exist here.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.settings import Losses


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


def perceptual() -> TrainConfig:
    """Stage 1 with perceptual and adversarial losses."""
    return replace(
        config(),
        run_dir="runs/animesr-perceptual",
        warm_start=("runs/animesr/last.safetensors",),
        learning_rate=1e-4,
        losses=Losses(
            perceptual=1.0,
            perceptual_layers="real-esrgan",
            gan=0.1,
            discriminator_channels=64,
            discriminator_learning_rate=1e-4,
        ),
        validation_metric="lpips",
    )
