"""The folder beside the output where a job keeps what is finished, until all is."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from vsrkit.errors import VsrkitError
from vsrkit.hardware.files import write_atomically
from vsrkit.upscale.scan import Index

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a job is: everything that decides its bytes, and what the scan found."""

    settings: Mapping[str, str]
    index: Index


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """Where things lie in it."""

    path: Path

    @classmethod
    def beside(cls, target: Path) -> "WorkFolder":
        """The folder for an output: hidden, named after it."""
        if target.name in ("", ".."):  # the current folder and the like
            target = target.resolve()
        return cls(target.with_name(f".{target.name}.vsrkit"))

    def part(self, number: int) -> Path:
        """The packets of a part, or for images the mark that it is done."""
        return self.path / f"part-{number:06d}"

    def state(self, number: int) -> Path:
        """What a model carries from a part into the next."""
        return self.path / f"state-{number:06d}.safetensors"

    @property
    def images(self) -> Path:
        """The finished frames of a job that writes images."""
        return self.path / "frames"

    def read(self) -> Manifest | None:
        """The manifest, if there is one that we can read."""
        names = (self._manifest, self._finished)
        path = next((path for path in names if path.exists()), self._manifest)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                return None
            index = content["index"]
            return Manifest(
                content["settings"],
                Index(tuple(index["times"]), index["last_duration"], tuple(index["cuts"])),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, manifest: Manifest) -> None:
        """Write the manifest; it is there whole or not at all."""
        index = manifest.index
        content = {
            "format": FORMAT,
            "settings": dict(manifest.settings),
            "index": {
                "times": index.times,
                "last_duration": index.last_duration,
                "cuts": index.cuts,
            },
        }
        write_atomically(self._manifest, json.dumps(content, indent=1) + "\n", sync=True)

    @property
    def _manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def _finished(self) -> Path:
        return self.path / "finished.json"

    def whole(self, suffix: str) -> Path:
        """The finished video, before it is given its name."""
        return self.path / f"whole{suffix}"

    def mark_finished(self) -> None:
        """Note that all that remains is to give the result its name and to tidy up."""
        if self._manifest.exists():
            self._manifest.replace(self._finished)

    @property
    def naming_began(self) -> bool:
        """Whether a process was killed when results may have had their names already."""
        return self._finished.exists()

    def only_tidying_remains(self, target: Path) -> bool:
        """Whether a process was killed after the result got its name and before we were gone."""
        unnamed = self.images.exists() or any(self.path.glob("whole*"))
        return self._finished.exists() and target.exists() and not unnamed

    def clear(self) -> None:
        """Throw everything away but the lock."""
        for path in self.path.iterdir() if self.path.is_dir() else ():
            if path.name == "lock":
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def remove(self) -> None:
        """Throw the folder away, the note that the job is finished last."""
        for path in self.path.iterdir():
            if path != self._finished:
                with suppress(OSError):
                    path.unlink()
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep other processes out of it; a killed one lets go by itself.

        If nothing came of the job, not even a manifest, the folder goes again.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            if sys.platform != "win32":
                import fcntl  # noqa: PLC0415  Unix only

                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise VsrkitError(
                        f"another vsrkit is at work in {self.path}; wait for it or stop it"
                    ) from error
            try:
                yield
            finally:
                if all(path.name == "lock" for path in self.path.iterdir()):
                    shutil.rmtree(self.path, ignore_errors=True)


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What is not the same, for people: `crf: 17, now 20`."""
    keys = [*new, *(key for key in old if key not in new)]
    return [
        "the input has changed"
        if key == "input"
        else f"{key} was {old.get(key, 'not set')}, now {new.get(key, 'not set')}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def save_states(path: Path, states: Sequence[Any]) -> None:
    """Write what a model carries: for each tile a tensor or a named tuple of them."""
    tensors = {
        f"{tile}.{place}": tensor.detach().cpu().contiguous().clone()
        for tile, state in enumerate(states)
        for place, tensor in enumerate([state] if isinstance(state, Tensor) else state)
    }
    write_atomically(path, save(tensors), sync=True)


def load_states(path: Path, like: Any, device: str) -> list[Any]:
    """What `save_states` wrote, in the form of `like`, a state of the same model."""
    tensors = load_file(path, device=device)
    count = 1 + max(int(name.split(".")[0]) for name in tensors)
    if isinstance(like, Tensor):
        return [tensors[f"{tile}.0"] for tile in range(count)]
    make = getattr(type(like), "_make", tuple)  # a named tuple or a plain one
    return [make(tensors[f"{tile}.{place}"] for place in range(len(like))) for tile in range(count)]


def remove_leftovers(folder: Path) -> None:
    """Delete half-written files of a process that was killed."""
    for path in folder.glob("*.part"):
        with suppress(OSError):
            path.unlink()
