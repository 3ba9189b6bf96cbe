"""`vsrt-s-web`: the small preset trained on for compressed video, mixed with clean.

Starts from the weights of `vsrt-s`, and learns what BasicVSR makes of the same clips uncompressed:

    vsrkit weights get basicvsr-vimeo90k-bi
    vsrkit train recipes/vsrt_s_web.py --set data=FOLDER --set warm_start=vsrt-s

Without a teacher (`--set teacher=`) it learns from HR.
"""

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """As `vsrt-s`, but three clips of four have been through a real encoder."""
    return TrainConfig(
        run_dir="runs/vsrt-s-web",
        model="vsrt-s",
        teacher="basicvsr-vimeo90k-bi",
        teacher_sees="clean",
        teacher_hr_share=0.5,
        steadiness=0.4,
        distinct_clips=480,
        data=(Source(path="data/clips"),),
        degradation="bi+crf15-35+crf15-35+crf15-35",
        steps=800,
        batch_size=4,
        frames=8,
        crop=48,
        optimizer="muon",
        learning_rate=2.5e-4,
        flow_learning_rate_scale=0.0,  # Muon makes large steps of its faint gradient: it drifts
        schedule="linear",
        warmup_steps=40,
        clip_gradients=2.0,
        ema_decay=0.995,
        validate_every=100,
        validation_crop=96,
        save_every=100,
    )
