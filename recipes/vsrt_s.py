"""`vsrt-s`, our small preset: Muon, short clips, started from inherited weights.

Training starts from an inherited model, and its flow network from `flow_light`:

    vsrkit train recipes/vsrt_s.py --set data=FOLDER --set warm_start=START.safetensors
"""

from vsrkit.train.config import Source, TrainConfig


def config() -> TrainConfig:
    """Seven frames of 48x48, three clips at a time: about a second a step on two cores."""
    return TrainConfig(
        run_dir="runs/vsrt-s",
        model="vsrt-s",
        data=(Source(path="data/clips"),),
        steps=1800,
        batch_size=3,
        frames=7,
        crop=48,
        optimizer="muon",
        learning_rate=1e-3,
        flow_learning_rate_scale=0.0,  # Muon makes large steps of its faint gradient: it drifts
        minimum_learning_rate=1e-6,
        warmup_steps=100,
        clip_gradients=0.5,
        ema_decay=0.998,
        validate_every=200,
        save_every=200,
    )
