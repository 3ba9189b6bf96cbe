"""Recipes for RealBasicVSR, with the settings of both stages of its authors in mmagic.

    torchrun --nproc-per-node 8 -m vsrkit train recipes/realbasicvsr.py --set data_root=REDS
    vsrkit weights get lpips
    torchrun --nproc-per-node 8 -m vsrkit train recipes/realbasicvsr.py:perceptual \
        --set data_root=REDS

300,000 steps on 15 frames of REDS, each clip followed by its frames in reverse order, 2 clips on
each of 8 GPUs, a constant learning rate, a fixed flow network, averaged weights. It differs from
the authors' stage 1: HR frames are not sharpened, there is no loss on the cleaned frames, and the
degradation `realistic` has one round of blur, resizing, noise and compression instead of two.
Stage 2 makes most of the detail of the published weights: 150,000 steps with perceptual and
adversarial losses, one clip on each GPU. It differs in the same points, and VGG16 takes the place
of VGG19, a relativistic loss that of the plain one, and the discriminator has fewer channels in its
deepest layers and spectral norm on all of them.
"""

from dataclasses import replace

from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.settings import Losses


def config() -> TrainConfig:
    """Stage 1."""
    return TrainConfig(
        run_dir="runs/realbasicvsr",
        model="realbasicvsr",
        warm_start=("basicvsr.spynet=basicvsr-reds4",),  # a trained SPyNet, which stays as it is
        data=(Source(path="reds-train"),),  # validated on REDS4
        degradation="realistic",
        steps=300_000,
        batch_size=2,
        frames=15,
        mirrored=True,
        crop=64,
        optimizer="adam",
        learning_rate=1e-4,
        flow_learning_rate_scale=0.0,
        betas=(0.9, 0.99),
        schedule="constant",
        ema_decay=0.999,
        precision="float32",
        validate_every=5000,
        save_every=5000,
        log_every=100,
        workers=10,
    )


def perceptual() -> TrainConfig:
    """Stage 2."""
    return replace(
        config(),
        run_dir="runs/realbasicvsr-perceptual",
        warm_start=("runs/realbasicvsr/last.safetensors",),
        steps=150_000,
        batch_size=1,
        learning_rate=5e-5,
        losses=Losses(
            perceptual=1.0,
            perceptual_layers="real-esrgan",
            gan=0.05,
            discriminator_channels=64,
            discriminator_learning_rate=1e-4,
        ),
        validation_metric="lpips",
    )
