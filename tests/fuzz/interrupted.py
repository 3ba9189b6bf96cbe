"""Interrupted jobs: work folders with finished parts, made once, and damage to them."""

import json
import os
import shutil
from contextlib import suppress

from tests.forked import run_forked
from tests.fuzz.mutate import damage, damage_json

from vsrkit import UpscaleOptions, upscale_video
from vsrkit.upscale import produce

PART_FRAMES = 8
KINDS = {  # name of the output, model in the corpus or by name, scale
    "video": ("out.mkv", "bicubic", None),
    "images": ("pictures", "bicubic", 2),
    "carried": ("out.mkv", "carried.safetensors", None),
    "other": ("out.mkv", "bicubic", 2),
}


def command(corpus, kind, folder):
    """The command of a job and its output."""
    name, model, scale = KINDS[kind]
    words = ["upscale", "-i", str(corpus.film), "-o", str(folder / name), "-m"]
    words += [_model(corpus, model), "--precision", "float32", "--max-memory", "2G"]
    return [*words, *(["--scale", str(scale)] if scale else [])], folder / name


def work_folder(kind, folder):
    """Where the work folder of a job is."""
    return folder / f".{KINDS[kind][0]}.vsrkit"


def place(corpus, kind, folder):
    """Put a work folder with two of three parts into `folder`; the bytes of the whole output."""
    made = _made(corpus, kind)
    shutil.copytree(work_folder(kind, made), work_folder(kind, folder))
    whole = made / "whole" / KINDS[kind][0]
    if whole.is_dir():
        return b"".join(p.name.encode() + p.read_bytes() for p in sorted(whole.iterdir()))
    return whole.read_bytes()


def _made(corpus, kind):
    """The folder of a job that was stopped after two parts, and of the same job run at once."""
    folder = corpus.folder / "jobs" / kind
    if not folder.exists():
        (folder / "whole").mkdir(parents=True)
        for target, last in ((folder / "whole", None), (folder, 22)):
            ended = run_forked(lambda t=target, n=last: _upscale(corpus, kind, t, n), folder)
            assert ended.code == (0 if last is None else 9), ended.errors
        parts = list(work_folder(kind, folder).glob("part-*"))
        assert len(parts) >= 2, parts
    return folder


def _upscale(corpus, kind, folder, last):
    name, model, scale = KINDS[kind]
    produce.PART_FRAMES = PART_FRAMES

    def stop(progress):
        if last is not None and progress.stage == "upscale" and progress.done >= last:
            os._exit(9)

    options = UpscaleOptions(
        model=_model(corpus, model), scale=scale, precision="float32", chunk=0, max_memory="2G"
    )
    upscale_video(corpus.film, folder / name, options=options, on_progress=stop)


def _model(corpus, name):
    return str(corpus.folder / "weights" / name) if name.endswith(".safetensors") else name


def damage_folder(corpus, kind, folder, random):
    """One or two files of a work folder cut, changed, swapped, removed or of another job."""
    work = work_folder(kind, folder)
    for _ in range(random.choice((1, 1, 2))):
        files = sorted(p for p in work.rglob("*") if p.is_file() and p.name != "lock")
        if not files:
            return
        path = random.choice(files)
        change = random.choice((_cut, _cut, _flip, _swap, _remove, _foreign, _json, _block))
        change(corpus, path, files, random)


def _cut(_corpus, path, _files, random):
    data = path.read_bytes()
    path.write_bytes(data[: random.randrange(len(data) + 1)])


def _flip(_corpus, path, _files, random):
    path.write_bytes(damage(path.read_bytes(), random))


def _swap(_corpus, path, files, random):
    other = random.choice([p for p in files if p.suffix == path.suffix])
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def _remove(_corpus, path, _files, _random):
    path.unlink()


def _foreign(corpus, path, _files, random):
    """The file of the same name from another job."""
    kind = random.choice(sorted(KINDS))
    other = work_folder(kind, _made(corpus, kind)) / path.name
    if other.exists():
        shutil.copy(other, path)


def _json(_corpus, path, _files, random):
    with suppress(ValueError):  # another file, or damaged already
        value = damage_json(json.loads(path.read_bytes()), random)
        path.write_bytes(json.dumps(value).encode("utf-8", "surrogatepass"))


def _block(_corpus, path, _files, random):
    """A folder, a link or an unreadable name in place of a file."""
    path.unlink()
    if random.random() < 0.5:
        path.mkdir()
    else:
        path.symlink_to("/nonexistent/file")
