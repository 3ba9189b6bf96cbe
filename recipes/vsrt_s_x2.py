"""Recipe for `vsrt-s-x2`: the towers of `vsrt-s` on 2x2 pixels, for scale 2.

    vsrkit train recipes/vsrt_s_x2.py --set data=FOLDER

It starts from the weights of `vsrt-s`, which sees the mean of the 2x2 pixels, and learns from HR:
there is no teacher for scale 2.
"""

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """One clip in three is compressed; three clips of 8 frames of 80x80, 1.5 s per step."""
    return TrainConfig(
        run_dir="runs/vsrt-s-x2",
        model="vsrt-s-x2",
        warm_start=("vsrt-s",),
        data=(Source(path="data/clips"),),
        degradation="bi+bi+crf18-32",
        loss="psnr",
        steadiness=0.3,  # less than at scale 4: the square error is a quarter
        steps=2400,
        batch_size=3,
        frames=8,
        crop=80,
        reversal=False,  # encoders work forwards
        optimizer="muon",
        learning_rate=8e-4,
        flow_learning_rate_scale=0.05,
        schedule="linear",
        warmup_steps=40,
        clip_gradients=10.0,
        ema_decay=0.99,
        validate_every=200,
        validation_frames=12,
        validation_crop=128,
        save_every=100,
    )
