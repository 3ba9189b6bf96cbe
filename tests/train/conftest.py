"""Short videos to train on, a small model, and a config of a run of a few steps."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from vsrkit.data.clips import Clip
from vsrkit.evaluate.perceptual import LPIPS, VGG16
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.zoo import save_model
from vsrkit.train.config import Source, TrainConfig


def moving_picture(frames: int, side: int, seed: int = 0) -> np.ndarray:
    """Blurred moving blobs: (T, H, W, 3) uint8."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    clip = np.full((frames, side, side, 3), 0.5)
    for _ in range(8):
        (cy, cx), (vy, vx) = rng.random(2), rng.normal(0, 0.01, 2)
        colour, width = rng.normal(0, 0.4, 3), rng.uniform(0.02, 0.1)
        for t in range(frames):
            distance = (y - cy - vy * t) ** 2 + (x - cx - vx * t) ** 2
            clip[t] += np.exp(-distance / width**2)[..., None] * colour
    return (clip.clip(0, 1) * 255).round().astype(np.uint8)


def write_cache(folder: Path, pixels: np.ndarray, name: str = "a") -> Clip:
    """Write frames (T, H, W, 3) as a decoded clip."""
    path = folder / f"{name}.rgb"
    path.write_bytes(pixels.tobytes())
    return Clip(name, path, pixels.shape)


def write_video(path: Path, frames: np.ndarray) -> None:
    """Write a lossless RGB video."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(path, "w") as container:
        stream = container.add_stream("ffv1", rate=25, options={"slicecrc": "0"})
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "bgr0"
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24").reformat(format="bgr0")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


def small_teacher(blocks: int) -> BasicVSR:
    """A BasicVSR of 8 channels whose blocks have random weights that change the output."""
    torch.manual_seed(0)
    model = BasicVSR(BasicVSRConfig(channels=8, blocks=blocks)).eval()
    for block in (*model.backward_trunk.main[2], *model.forward_trunk.main[2]):
        for conv in (block.conv1, block.conv2):
            torch.nn.init.normal_(conv.weight, std=0.1)
    return model


@pytest.fixture(scope="session")
def videos(tmp_path_factory) -> Path:
    """A folder of three short videos."""
    folder = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(("boat", "hill1", "hill2")):
        write_video(folder / f"{name}.mkv", moving_picture(8, 96, seed=number))
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A weight file of a very small preset."""
    torch.manual_seed(0)
    model = VSRTSmall(SmallConfig(channels=16, tower_blocks=1, head_blocks=1, attention=False))
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_model(path, model)
    return path


def short_run(videos: Path, model: Path, folder: Path, /, **changes: object) -> TrainConfig:
    """The config of a run of a few steps, with changes."""
    values = {
        "run_dir": str(folder / "run"),
        "data": (Source(path=str(videos)),),
        "model": str(model),
        "cache_dir": str(folder / "cache"),
        "validation": ("boat",),
        "steps": 6,
        "batch_size": 2,
        "frames": 3,
        "crop": 16,
        "optimizer": "muon",
        "learning_rate": 1e-3,
        "clip_gradients": 0.5,
        "ema_decay": 0.9,
        "precision": "float32",
        "device": "cpu",
        "log_every": 1,
        "validate_every": 100,
        "validation_frames": 3,
        "save_every": 2,
        "workers": 0,
    }
    return TrainConfig(**(values | changes))


@pytest.fixture
def config(videos: Path, tiny_model: Path, tmp_path: Path) -> Callable[..., TrainConfig]:
    """`short_run` in `tmp_path`."""
    return partial(short_run, videos, tiny_model, tmp_path)


def random_vgg_lpips() -> LPIPS:
    """LPIPS with random weights of VGG16, in place of the downloaded ones."""
    torch.manual_seed(0)
    metric = LPIPS(VGG16())
    for head in metric.heads:
        torch.nn.init.uniform_(head)
    return metric.eval().requires_grad_(False)
