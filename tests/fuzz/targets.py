"""What is fuzzed: each target damages a file, and says which command must cope with it."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import av
from tests.fuzz import interrupted
from tests.fuzz.mutate import (
    VALUES,
    damage,
    damage_json,
    damage_safetensors,
    damage_zip,
)

from vsrkit.video.images import read_image

OUTPUTS = ("out.mkv", "out.mkv", "out.mkv", "out.mp4", "out.mov", "out.webm", "out.y4m", "pictures")
OPTIONS = (
    [], [], [], ["--scale", "2"], ["--scale", "1"], ["--height", "32"], ["--start", "0.04"],
    ["--end", "0.1"], ["--deinterlace", "always"], ["--chunk", "0"], ["--codec", "ffv1"],
)  # fmt: skip
WRONG_SUFFIXES = (".mp4", ".mkv", ".avi", ".webm", ".y4m", ".ts", ".mov", ".png", ".flv", ".gif")
TOML_VALUES = [
    "-1",
    "1e999",
    "nan",
    "[]",
    "{}",
    '""',
    "true",
    "[1, [2]]",
    "2099-01-01",
    "0x7fffffff",
]


@dataclass(frozen=True)
class Case:
    """A command and what it may do.

    words: the arguments after `vsrkit`.
    output: path that exists exactly if the command succeeds; None if it writes none.
    stdin: file for standard input.
    wanted: bytes of the output if the command succeeds.
    """

    words: list
    output: Path | None = None
    stdin: Path | None = None
    wanted: bytes | None = None
    inputs: list = field(default_factory=list)  # kept if this is a finding
    codes: tuple = (0, 1)


def video(corpus, folder, random):
    """A damaged video through `upscale`, or through `plan`."""
    original = random.choice(corpus.videos)
    data = damage(original.read_bytes(), random)
    if random.random() < 0.03:
        data += damage(random.choice(corpus.videos).read_bytes(), random)
    suffix = original.suffix if random.random() < 0.9 else random.choice(WRONG_SUFFIXES)
    return command_for_video(_written(folder / f"in{suffix}", data), folder, random)


def command_for_video(source, folder, random):
    """A command that reads a file, with an output and options drawn at random."""
    name, options = random.choice(OUTPUTS), random.choice(OPTIONS)
    if random.random() < 0.1:
        return Case(["plan", str(source), *options], inputs=[source])
    if random.random() < 0.05:
        target = folder / "out.mkv"
        words = ["upscale", "-i", "-", "-o", str(target), "-m", "bicubic"]
        return Case(words, target, stdin=source, inputs=[source])
    target = folder / name
    if options == ["--codec", "ffv1"]:
        target = folder / "out.mkv"
    words = ["upscale", "-i", str(source), "-o", str(target), "-m", "bicubic", *options]
    return Case(words, target, inputs=[source])


def image(corpus, folder, random):
    """A damaged image, alone or as one of a sequence."""
    original = random.choice(corpus.images)
    data = damage(original.read_bytes(), random)
    suffix = original.suffix if random.random() < 0.9 else random.choice((".png", ".jpg", ".tif"))
    if random.random() < 0.5:
        source = _written(folder / f"in{suffix}", data)
        return command_for_video(source, folder, random)
    frames = folder / "frames"
    frames.mkdir()
    shutil.copy(original, frames / f"0{suffix}")
    source = _written(frames / f"1{suffix}", data)
    case = command_for_video(frames, folder, random)
    return Case(case.words, case.output, inputs=[source]) if case.stdin is None else Case(
        ["plan", str(frames)], inputs=[source]
    )  # fmt: skip


def weights(corpus, folder, random):
    """A damaged weight file as the model of a short job, or as a download that was kept."""
    original = random.choice(corpus.weights)
    data = original.read_bytes()
    if original.suffix == ".safetensors":
        data = damage_safetensors(data, random)
    elif data.startswith(b"PK"):
        data = damage_zip(data, random)
    elif original.name != "bomb.pth":
        data = damage(data, random)
    suffix = original.suffix if random.random() < 0.9 else random.choice((".pth", ".safetensors"))
    path = _written(folder / f"net{suffix}", data)
    if random.random() < 0.2:
        if suffix != ".safetensors" and random.random() < 0.5:
            path = path.rename(path.with_suffix(".whl"))
        name = random.choice(("basicvsr-reds4", "animesr-v2", "rrn-5l", "lpips"))
        return Case(["weights", "get", name, "--from", str(path)], inputs=[path])
    target = folder / "out.mkv"
    words = ["upscale", "-i", str(corpus.folder / "videos" / "h264.mkv"), "-o", str(target)]
    return Case([*words, "-m", str(path), "--end", "0.1"], target, inputs=[path])


def job(corpus, folder, random):
    """The work folder of an interrupted job, damaged; resumed, it gives the same bytes."""
    kind = random.choice(sorted(interrupted.KINDS))
    whole = interrupted.place(corpus, kind, folder)
    interrupted.damage_folder(corpus, kind, folder, random)
    words, target = interrupted.command(corpus, kind, folder)
    # Its bytes are right, or it stops without losing what is finished.
    return Case(words, target, wanted=whole, inputs=[interrupted.work_folder(kind, folder)])


def recipe(corpus, folder, random):
    """A damaged recipe; training does not begin, because its data do not exist."""
    original = random.choice(corpus.recipes)
    text = original.read_text()
    kind = random.random()
    if kind < 0.3:
        data = damage(text.encode(), random)
    elif original.suffix == ".json":
        import json  # noqa: PLC0415

        data = json.dumps(damage_json(json.loads(text), random)).encode("utf-8", "surrogatepass")
    else:
        data = _damaged_lines(text, random).encode("utf-8", "surrogatepass")
    if original.suffix == ".py":
        data = original.read_bytes() if kind < 0.3 else b"def config():\n    return 1 / 0\n"
    path = _written(folder / original.name, data)
    words = ["train", str(path)]
    if random.random() < 0.3:
        key = random.choice(("steps", "crop", "data", "losses", "precision", "x", ""))
        value = random.choice([*TOML_VALUES, *(str(v) for v in VALUES)])
        words += ["--set", f"{key}={value}".replace("\0", "").encode("utf-8", "replace").decode()]
    return Case(words, inputs=[path], codes=(1, 2))


def _damaged_lines(text, random):
    lines = text.splitlines()
    for _ in range(random.choice((1, 1, 2))):
        place = random.randrange(len(lines))
        key, equals, _ = lines[place].partition("=")
        kind = random.randrange(4)
        if kind == 0 and len(lines) > 1:
            del lines[place]
        elif kind == 1:
            lines.insert(place, lines[random.randrange(len(lines))])
        elif kind == 2:
            lines[place] = f"{key}{equals} {random.choice(TOML_VALUES)}"
        else:
            lines[place] = f"{random.choice(('x', '', '[a]', 'data'))}{equals}{lines[place]}"
    return "\n".join(lines)


def data_set(corpus, folder, random):
    """A folder of clips with damaged images, missing files and strange names."""
    root = folder / "set"
    images = [path for path in corpus.images if path.suffix == ".png"]
    layout = random.choice((("a", "b"), ("GT/a", "GT/b", "BIx4/a"), ("train_sharp/000",), ("",)))
    for name in layout:
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(3):
            shutil.copy(random.choice(images), root / name / f"{number:08d}.png")
    files = sorted(root.rglob("*.png"))
    for path in random.sample(files, min(2, len(files))):
        kind = random.randrange(5)
        if kind == 0:
            path.unlink()
        elif kind == 1:
            path.rename(
                path.with_name(random.choice(("[red].png", "é\n.png", "-1.png", "x" * 200)))
            )
        elif kind == 2:
            path.unlink()
            path.mkdir()
        elif kind == 3:
            path.unlink()
            path.symlink_to(random.choice((path.name, "/nonexistent", "/dev/null")))
        else:
            path.write_bytes(damage(path.read_bytes(), random))
    if random.random() < 0.3:
        (root / "sep_testlist.txt").write_bytes(random.randbytes(40))
    if random.random() < 0.2:
        shutil.copy(random.choice(corpus.videos), root / "clip.mkv")
    words = ["data", "check", str(root), *random.choice(([], ["--quick"], ["--set", "vid4"]))]
    if random.random() < 0.2:
        words = ["evaluate", "--data", str(root), "-m", "bicubic"]
    return Case(words, inputs=[root])


TARGETS = {
    "video": (video, 60),
    "image": (image, 10),
    "weights": (weights, 12),
    "job": (job, 10),
    "recipe": (recipe, 4),
    "data_set": (data_set, 4),
}


def draw(corpus, folder, random):
    """A case of a target that is drawn by its weight."""
    names = list(TARGETS)
    (name,) = random.choices(names, [TARGETS[n][1] for n in names])
    return name, TARGETS[name][0](corpus, folder, random)


def frames_in(path):
    """The number of frames that an output has, all of which can be decoded."""
    if path.is_dir():
        return sum(read_image(image).isfinite().all().item() for image in path.iterdir())
    with av.open(str(path)) as file:
        return sum(1 for _ in file.decode(video=0))


def _written(path, data):
    path.write_bytes(data)
    return path
