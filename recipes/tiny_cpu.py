"""A check of the installation: a small model overfits a small clip, in two minutes on two cores.

    vsrkit train recipes/tiny_cpu.py

It needs no data, because it draws its own clip. tests/golden/tiny_cpu.txt has the first losses, so
that tests detect changes of the numerical results.
"""

from pathlib import Path

import numpy as np
import torch

from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.zoo import save_model
from vsrkit.train.config import Source, TrainConfig
from vsrkit.video.images import write_image

FRAMES, HEIGHT, WIDTH = 12, 128, 160


def config(folder: Path = Path("runs/tiny-cpu")) -> TrainConfig:
    """Draw the clip and write the initial weights to `folder`; train on them."""
    clip, initial = folder / "clip", folder / "start.safetensors"
    draw_clip(clip)
    if not initial.exists():
        torch.manual_seed(0)
        save_model(initial, VSRTSmall(SmallConfig(channels=32, tower_blocks=2, head_blocks=1)))
    return TrainConfig(
        run_dir=str(folder / "run"),
        cache_dir=str(folder / "cache"),
        data=(Source(path=str(clip)),),
        model=str(initial),
        steps=1000,
        batch_size=2,
        frames=3,
        crop=24,
        optimizer="muon",
        learning_rate=2e-3,
        minimum_learning_rate=1e-5,
        warmup_steps=20,
        clip_gradients=0.5,
        ema_decay=0.98,
        precision="float32",
        validation_overlaps=True,
        validation_frames=5,
        validate_every=250,
        save_every=250,
    )


def draw_clip(folder: Path) -> None:
    """Write the frames of moving stripes and discs on a colour gradient as PNG files."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    for t in range(FRAMES):
        frame = np.stack([x / WIDTH, y / HEIGHT, 0.5 + 0 * x])
        stripes = np.sin((x + 0.6 * y + 1.7 * t) / 3) > 0
        frame = np.where((y > 80) & stripes, 0.9 * frame, frame)
        for number, (speed, radius) in enumerate(((2.3, 14), (-1.6, 20), (0.7, 8))):
            inside = np.hypot(x - 40 - 35 * number - speed * t, y - 30 - 20 * number) < radius
            colour = np.eye(3)[number].reshape(3, 1, 1)
            frame = np.where(inside, 0.2 + 0.7 * colour, frame)
        write_image(folder / f"{t:02}.png", torch.from_numpy(frame).float())
