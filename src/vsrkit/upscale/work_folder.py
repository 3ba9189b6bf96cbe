"""The parts of a job, and the work folder beside the output that stores them until it is done."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load_file, save
from torch import Tensor

from vsrkit.errors import VideoError, VsrkitError
from vsrkit.hardware.files import write_atomically
from vsrkit.inference.shots import mark_cuts
from vsrkit.inference.windows import PiecePlan, plan_pieces
from vsrkit.models.spec import Context
from vsrkit.upscale.options import OnProgress, Progress, ResolvedOptions
from vsrkit.video.read import WHOLE_VIDEO, Source
from vsrkit.video.timestamps import Clock

PART_FRAMES = 48  # least number in every part but the last: the most that a crash can cost


@dataclass(frozen=True, slots=True)
class Index:
    """The frames of a source by number: when each is shown, and which ones begin a shot."""

    times: tuple[int, ...]  # in units of the source's time base
    last_duration: int
    cuts: tuple[int, ...]

    @property
    def shots(self) -> list[range]:
        """The frames of each shot."""
        return [range(a, b) for a, b in pairwise((0, *self.cuts, len(self.times)))]

    def clock(self, source: Source) -> Clock:
        """The times in the form that the muxer takes."""
        return Clock(self.times, self.last_duration, source.info.time_base)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive frames of the output that are written as one file, and their pieces."""

    number: int
    start: int
    stop: int
    pieces: tuple[PiecePlan, ...]


class Manifest(BaseModel):
    """What identifies a job: the options that decide its bytes, and what the scan found."""

    model_config = ConfigDict(frozen=True)

    format: Literal[2] = 2
    options: ResolvedOptions
    index: Index


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """Paths in the work folder, and its life from lock to removal."""

    path: Path

    @classmethod
    def beside(cls, target: Path) -> "WorkFolder":
        """The hidden work folder of an output, named after it."""
        if target.name in ("", ".."):  # such as the current folder
            target = target.resolve()
        return cls(target.with_name(f".{target.name}.vsrkit"))

    def part(self, number: int) -> Path:
        """File with the packets of a part; for images a marker that the part is complete."""
        return self.path / f"part-{number:06d}"

    def state(self, number: int) -> Path:
        """File with the recurrent state of the model after a part."""
        return self.path / f"state-{number:06d}.safetensors"

    @property
    def images(self) -> Path:
        """Folder of the finished frames of a job that writes images."""
        return self.path / "frames"

    def read(self) -> Manifest | None:
        """The manifest; None if there is none or it has another format."""
        names = (self._manifest, self._finished)
        path = next((path for path in names if path.exists()), self._manifest)
        try:
            return Manifest.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, manifest: Manifest) -> None:
        """Write the manifest atomically."""
        write_atomically(self._manifest, manifest.model_dump_json(indent=1) + "\n", sync=True)

    @property
    def _manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def _finished(self) -> Path:
        return self.path / "finished.json"

    def whole(self, suffix: str) -> Path:
        """The complete video before it is moved to the output path."""
        return self.path / f"whole{suffix}"

    def mark_finished(self) -> None:
        """Record that only moving the result to its path and removing this folder remain."""
        if self._manifest.exists():
            self._manifest.replace(self._finished)

    @property
    def is_finished(self) -> bool:
        """Whether all frames are made; some results may already be at the output path."""
        return self._finished.exists()

    def only_cleanup_remains(self, target: Path) -> bool:
        """Whether a process was killed after moving the result and before removing this folder."""
        unmoved = self.images.exists() or any(self.path.glob("whole*"))
        return self.is_finished and target.exists() and not unmoved

    def clear(self) -> None:
        """Delete everything except the lock."""
        for path in self.path.iterdir() if self.path.is_dir() else ():
            if path.name == "lock":
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def remove(self) -> None:
        """Delete the folder, the record that the job is finished last."""
        for path in self.path.iterdir():
            if path != self._finished:
                with suppress(OSError):
                    path.unlink()
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and lock it; the system releases the lock of a killed process.

        A folder that is still empty at the end (not even a manifest was written) is removed.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path / "lock", timeout=0):
                try:
                    yield
                finally:
                    if all(path.name == "lock" for path in self.path.iterdir()):
                        shutil.rmtree(self.path, ignore_errors=True)
        except Timeout as error:
            raise VsrkitError(
                f"another vsrkit process works in {self.path}; wait for it or stop it"
            ) from error


def save_states(path: Path, states: Sequence[Any]) -> None:
    """Write the recurrent states of a model: a tensor or a tuple of tensors for each tile."""
    tensors = {
        f"{tile}.{place}": tensor.detach().cpu().contiguous().clone()
        for tile, state in enumerate(states)
        for place, tensor in enumerate([state] if isinstance(state, Tensor) else state)
    }
    write_atomically(path, save(tensors), sync=True)


def load_states(path: Path, like: Any, device: str) -> list[Any]:
    """Read states written by `save_states`; each gets the type of `like`, a state of the model."""
    tensors = load_file(path, device=device)
    count = 1 + max(int(name.split(".")[0]) for name in tensors)
    if isinstance(like, Tensor):
        return [tensors[f"{tile}.0"] for tile in range(count)]
    make = getattr(type(like), "_make", tuple)  # a named tuple or a plain one
    return [make(tensors[f"{tile}.{place}"] for place in range(len(like))) for tile in range(count)]


def remove_leftovers(folder: Path) -> None:
    """Delete partly written files of a process that was killed."""
    for path in folder.glob("*.part"):
        with suppress(OSError):
            path.unlink()


def scan(source: Source, on_progress: OnProgress) -> Index:
    """Decode a source once to find times and cuts; calls `on_progress` after every frame."""
    total = source.info.frames if source.span == WHOLE_VIDEO else None
    times: list[int] = []
    durations: list[int] = []

    def frames() -> Iterator[Tensor]:
        for picture in source.pictures():
            times.append(picture.time)
            durations.append(picture.duration)
            yield picture.rgb().clamp(0, 1)

    cuts = []
    for number, (_, begins) in enumerate(mark_cuts(frames())):
        if begins and number:
            cuts.append(number)
        on_progress(Progress(stage="scan", done=number + 1, total=total))
    if not times:
        raise VideoError(f"{source.path} has no frames between --start and --end")
    usual = round(1 / source.info.frame_rate / source.info.time_base)
    return Index(tuple(times), durations[-1] or max(1, usual), tuple(cuts))


def fingerprint(source: Source) -> str:
    """A hash of the content of the source's files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in source.images or (source.path,):
        if source.images:
            digest.update(path.name.encode())
        _add_file(digest, path)
    return digest.hexdigest()


def _add_file(digest: "hashlib.blake2b", path: Path) -> None:
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise VideoError(f"cannot read {path}: {error.strerror}") from error


def plan_parts(
    shots: Iterable[range], context: Context, *, stride: int = 1, frames: int | None = None
) -> Iterator[Part]:
    """Divide a video into parts; they depend on the video and the model only.

    A part consists of whole pieces of one or more shots, so that no frame is computed twice.

    shots: frame numbers of each shot.
    context: frames that the model needs around each one.
    stride: frames to keep of each window, see `plan_pieces`.
    frames: least number of frames of a part; None takes PART_FRAMES.
    """
    least = PART_FRAMES if frames is None else frames
    pieces: list[PiecePlan] = []
    number = start = stop = 0
    for shot in shots:
        for piece in plan_pieces(shot.start, shot.stop, context, stride=stride):
            pieces.append(piece)
            stop = piece.kept[-1] + 1
            if stop - start >= least:
                yield Part(number, start, stop, tuple(pieces))
                pieces, number, start = [], number + 1, stop
    if pieces:
        yield Part(number, start, stop, tuple(pieces))
