"""Measure what a resumed job costs before its first new frame, and what the scan pays for that.

    python benchmarks/resume.py [--frames 5000] [--done 0.9]

A job with 90 % of its parts written is resumed and stopped after its first new frame: with the
seeks that its scan made possible, and with a manifest without them, which decodes the video from
its start. The scan runs with and without recording checksums. All in turn and several times; the
best of each counts.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pipeline import write_source
from vsrkit import UpscaleOptions, __version__, upscale_video
from vsrkit.models.zoo import load_model
from vsrkit.upscale.options import Progress
from vsrkit.upscale.produce import RecordedFiles, plan_parts, scan
from vsrkit.upscale.work_folder import Manifest, WorkFolder
from vsrkit.video.read import Picture, Source, open_source
from vsrkit.video.seek import EMPTY_TABLE, SeekTableBuilder

RESULT = Path(__file__).parent / "results" / "resume.json"


class StoppedHereError(Exception):
    """Ends a job."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--frames", type=int, default=5000)
    options.add_argument("--done", type=float, default=0.9)
    options.add_argument("--model", default="bicubic")
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--save", action="store_true", help=f"write {RESULT.name}")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = write_source(Path(folder), given.frames)
        target = Path(folder) / "out.mkv"
        job = UpscaleOptions(model=given.model, precision="float32")
        result: dict[str, object] = {"vsrkit": __version__, "frames": given.frames}
        result |= {"model": given.model, "done": given.done}
        result |= measure_resume(source, target, job, given.done, given.repeat)
        result |= measure_scan(open_source(source), given.repeat)
    print(json.dumps(result, indent=2))
    if given.save:
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure_resume(
    source: Path, target: Path, job: UpscaleOptions, done: float, repeat: int
) -> dict[str, float]:
    """Seconds from the call to the first new frame, and their ratio."""
    run_until(source, target, job, lambda progress: progress.stage == "upscale")
    folder = WorkFolder.beside(target)
    manifest = folder.read()
    assert manifest is not None
    context = load_model(str(job.model)).spec.context
    total = len(manifest.index.times)
    parts = [p for p in plan_parts(manifest.index.shots, context) if p.stop <= done * total]
    without = replace(manifest.index, seek_table=EMPTY_TABLE)
    manifests = {
        "seek_s": manifest,
        "from_start_s": Manifest(options=manifest.options, index=without),
    }
    times: dict[str, list[float]] = {name: [] for name in manifests}
    for _ in range(repeat):
        for name, stored in manifests.items():
            folder.write(stored)
            for part in parts:
                files = RecordedFiles(folder.write_file)
                files.write(part.file, [b""])
                files.finish(stored.identity, part)
            times[name].append(time_to_first_frame(source, target, job))
    shutil.rmtree(folder.path)
    best = {name: round(min(values), 3) for name, values in times.items()}
    return {**best, "resume_ratio": round(best["seek_s"] / best["from_start_s"], 4)}


def time_to_first_frame(source: Path, target: Path, job: UpscaleOptions) -> float:
    existing: list[int] = []

    def is_new_frame(progress: Progress) -> bool:
        if progress.stage == "upscale":
            existing.append(progress.done)
        return bool(existing) and existing[-1] > existing[0]

    begin = time.perf_counter()
    run_until(source, target, job, is_new_frame)
    return time.perf_counter() - begin


def run_until(
    source: Path, target: Path, job: UpscaleOptions, reached: Callable[[Progress], bool]
) -> None:
    def stop(progress: Progress) -> None:
        if reached(progress):
            raise StoppedHereError

    try:
        upscale_video(source, target, options=job, on_progress=stop)
    except StoppedHereError:
        return
    raise SystemExit("the job ended before it could be stopped")


def measure_scan(source: Source, repeat: int) -> dict[str, float]:
    """Processor seconds of a scan with and without recording checksums, and their ratio."""
    record = SeekTableBuilder.add

    def skip(builder: SeekTableBuilder, picture: Picture) -> None:
        pass

    times: dict[str, list[float]] = {"scan_cpu_s": [], "scan_without_cpu_s": []}
    for _ in range(repeat):
        for name, add in (("scan_cpu_s", record), ("scan_without_cpu_s", skip)):
            SeekTableBuilder.add = add  # type: ignore[method-assign]
            begin = time.process_time()
            scan(source, lambda _: None)
            times[name].append(time.process_time() - begin)
    best = {name: round(min(values), 3) for name, values in times.items()}
    ratio = best["scan_cpu_s"] / best["scan_without_cpu_s"]
    return {**best, "scan_ratio": round(ratio, 4)}


if __name__ == "__main__":
    main()
