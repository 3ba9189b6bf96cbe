"""`vsrt-s-web`: the small preset trained on for compressed video, mixed with clean.

Starts from the weights of `vsrt-s`:

    vsrkit train recipes/vsrt_s_web.py --set data=FOLDER --set warm_start=vsrt-s
"""

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """As `vsrt-s`, but two clips of three have been through a real encoder."""
    return TrainConfig(
        run_dir="runs/vsrt-s-web",
        model="vsrt-s",
        data=(Source(path="data/clips"),),
        degradation="bi+crf15-35+crf15-35",
        steps=1000,
        batch_size=3,
        frames=7,
        crop=48,
        optimizer="muon",
        learning_rate=6e-4,
        flow_learning_rate_scale=0.0,  # Muon makes large steps of its faint gradient: it drifts
        minimum_learning_rate=1e-6,
        warmup_steps=50,
        clip_gradients=0.5,
        ema_decay=0.998,
        validate_every=200,
        save_every=100,
    )
