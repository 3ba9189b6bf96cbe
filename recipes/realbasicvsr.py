"""A recipe for RealBasicVSR, with the settings of the first stage of its authors in mmagic.

    torchrun --nproc-per-node 8 -m vsrkit train recipes/realbasicvsr.py --set data_root=REDS

300,000 steps on 30 frames of REDS, 2 clips on each of 8 GPUs, a constant learning rate, a fixed
flow network, averaged weights. It differs from the authors' stage 1: clips are not 15 frames and
their mirror image, HR frames are not sharpened, there is no loss on the cleaned frames, and the
degradation `realistic` has one round of blur, resizing, noise and compression instead of two.
Stage 2 (perceptual and adversarial losses) does not exist here: it makes most of the detail of the
published weights.
"""

from vsrkit.train.config import Source, TrainConfig


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
        frames=30,
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
