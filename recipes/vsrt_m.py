"""`vsrt-m`, our larger preset, first beside its teacher, then by itself.

It starts from blocks of a trained BasicVSR (`vsrkit weights get basicvsr-vimeo90k-bi`) and learns
its features, then goes on without it:

    vsrkit train recipes/vsrt_m.py --set data=FOLDER
    vsrkit train recipes/vsrt_m.py --set data=FOLDER --set teacher= \
        --set warm_start=runs/vsrt-m/last.safetensors --set run_dir=runs/vsrt-m-alone
"""

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """Seven frames of 48x48, two clips at a time: about five seconds a step on two cores."""
    return TrainConfig(
        run_dir="runs/vsrt-m",
        model="vsrt-m",
        teacher="basicvsr-vimeo90k-bi",
        warm_start=("flow=vsrt-s",),
        data=(Source(path="data/clips"),),
        steps=1200,
        batch_size=2,
        frames=7,
        crop=48,
        optimizer="muon",
        learning_rate=1e-3,
        flow_learning_rate_scale=0.0,  # Muon makes large steps of its faint gradient: it drifts
        minimum_learning_rate=1e-6,
        warmup_steps=50,
        clip_gradients=0.5,
        ema_decay=0.998,
        validate_every=200,
        save_every=100,
    )
