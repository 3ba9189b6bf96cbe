"""`vsrt-s-web`: the small preset trained on for compressed video, mixed with clean.

Starts from the weights of `vsrt-s`, and learns what BasicVSR makes of the same clips uncompressed:

    vsrkit weights get basicvsr-vimeo90k-bi
    vsrkit train recipes/vsrt_s_web.py --set data=FOLDER

Two processes share two cores:

    torchrun --nproc-per-node 2 -m vsrkit train recipes/vsrt_s_web.py --set data=FOLDER \
        --set batch_size=2

Without a teacher (`--set teacher=`) it learns from HR. `refitted.safetensors` is what to use.
"""

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """As `vsrt-s`, but three clips of four have been through a real encoder.

    Longer clips, because what an encoder took from one frame is often left in another; and never
    backwards, because encoders work forwards.
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
        refit="+".join(["bi", *["crf22-28"] * 7]),  # a little clean: it gains most there
        validate_every=200,
        validation_frames=17,
        validation_crop=96,
        save_every=100,
    )
