"""Recipe for `vsrt-s-web`: `vsrt-s` trained further on compressed and clean video.

It starts from the weights of `vsrt-s`. Its target is the output of BasicVSR for the same clips
without compression:

    vsrkit weights get basicvsr-vimeo90k-bi
    vsrkit train recipes/vsrt_s_web.py --set data=FOLDER

Two processes share two cores:

    torchrun --nproc-per-node 2 -m vsrkit train recipes/vsrt_s_web.py --set data=FOLDER \
        --set batch_size=2

Without a teacher (`--set teacher=`) the target is HR. The result is `refitted.safetensors`.
"""

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """Three of four clips are compressed by a real encoder.

    Clips are longer than for `vsrt-s`, because details that the encoder removed from one frame are
    often present in another. They are never reversed, because encoders work forwards.
    """
    return TrainConfig(
        run_dir="runs/vsrt-s-web",
        model="vsrt-s",
        warm_start=("vsrt-s",),
        teacher="basicvsr-vimeo90k-bi",
        teacher_mode="frames",
        teacher_frames=32,
        teacher_hr_share=0.3,
        loss="psnr",
        steadiness=1.5,
        data=(Source(path="data/clips"),),
        degradation="bi+crf15-35+crf20-30+crf20-30",
        steps=1400,
        batch_size=4,
        frames=15,
        crop=56,
        reversal=False,
        optimizer="muon",
        learning_rate=3e-4,
        flow_learning_rate_scale=0.05,
        schedule="linear",
        warmup_steps=40,
        clip_gradients=10.0,
        ema_decay=0.99,
        refit="+".join(["bi", *["crf22-28"] * 7]),  # one of eight clean, where the gain is largest
        validate_every=200,
        validation_frames=17,
        validation_crop=96,
        save_every=100,
    )
