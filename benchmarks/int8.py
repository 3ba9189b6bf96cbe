"""Measure int8: its speed, its loss on Vid4, and whether its errors grow with time.

    python benchmarks/int8.py drift                  200 still frames: the difference to float32
    python benchmarks/int8.py upscale                whole jobs of 320x180, compared with BasicVSR
    python benchmarks/int8.py vid4 --data FOLDER     the loss on whole clips, clean and at CRF 25
    python benchmarks/speed.py precision             the speed, of the function `int8_rows` below

Each prints a table and writes benchmarks/results/int8-<suite>.json.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from pipeline import write_source
from timing import best_seconds
from vsrkit import UpscaleOptions, load_model, upscale_frames, upscale_video
from vsrkit.evaluate.benchmark import evaluate_models
from vsrkit.hardware.device import Precision, PrecisionName, inference_context, resolve_precision
from vsrkit.hardware.instructions import instruction_level
from vsrkit.hardware.memory import keep_freed_memory
from vsrkit.inference.engine import make_engine
from vsrkit.models.spec import Segments
from vsrkit.models.zoo import build_model
from vsrkit.video.read import open_source

RESULTS = Path(__file__).parent / "results"
FLOAT = Precision("float32", channels_last=True)
HEIGHT, WIDTH = 180, 320
STILL_FRAMES = 200
UPSCALED_FRAMES = 40


def int8_rows(
    rounds: int, names: Sequence[str] = ("vsrt-s", "vsrt-m"), threads: Sequence[int] = (1, 2)
) -> list[dict[str, Any]]:
    """Time our models in each number type on four frames of 180x320, in one and two threads.

    One thread is measured in processor time, which other processes affect least.
    """
    keep_freed_memory()
    rows = []
    before = torch.get_num_threads()
    clip = torch.rand(1, 4, 3, HEIGHT, WIDTH)
    print(f"{'':8} {'threads':>7} {'type':28} {'s/frame':>8} {'/float32':>8} {'/floats':>8}")
    for name in names:
        model = load_model(name)
        floats = resolve_precision("auto", model)
        floats = floats if floats.channels_last else FLOAT
        kinds = {FLOAT, floats, *(replace(floats, int8=kind) for kind in ("int8", "int8-exact"))}
        engines = {str(p): make_engine(model, precision=p) for p in sorted(kinds, key=str)}

        def run(engine: Any) -> None:
            with inference_context(engine.precision, "cpu"):
                engine.network(clip)

        for count in threads:
            torch.set_num_threads(count)
            seconds = best_seconds(
                {kind: lambda e=engine: run(e) for kind, engine in engines.items()},
                rounds,
                time.process_time if count == 1 else time.perf_counter,
            )
            for kind, value in seconds.items():
                row = {
                    "model": name,
                    "threads": count,
                    "type": kind,
                    "seconds": value / clip.shape[1],
                    "over_float32": seconds[str(FLOAT)] / value,
                    "over_floats": seconds[str(floats)] / value,
                }
                rows.append(row | {"instructions": instruction_level()})
                print(
                    f"{name:8} {count:7} {kind:28} {row['seconds']:8.3f} "
                    f"{row['over_float32']:8.2f} {row['over_floats']:8.2f}"
                )
    torch.set_num_threads(before)
    return rows


def drift(names: Sequence[str], source: Path) -> dict[str, Any]:
    """The difference to float32 over a still clip, by stretches of time and at borders.

    source: a video whose first frame is shown all the time
    """
    frame = next(iter(open_source(source).frames()))[:, 200:248, 300:364]
    still = [frame] * STILL_FRAMES
    rows = []
    for name in names:
        model = load_model(name)
        wanted = list(upscale_frames(still, make_engine(model, precision=FLOAT)))
        for kind in ("int8", "int8-exact"):
            found = list(
                upscale_frames(still, make_engine(model, precision=replace(FLOAT, int8=kind)))
            )
            pairs = zip(found, wanted, strict=True)
            rms = 255 * torch.stack([(a - b).square().mean().sqrt() for a, b in pairs])
            steps = 255 * torch.stack(
                [
                    ((b - a) - (d - c)).square().mean().sqrt()
                    for a, b, c, d in zip(found, found[1:], wanted, wanted[1:], strict=False)
                ]
            )
            context = model.spec.context
            length = context.length if isinstance(context, Segments) else 20
            borders = torch.arange(1, STILL_FRAMES) % length == 0
            row = {
                "model": name,
                "type": kind,
                "rms_by_50_frames": [round(float(part.mean()), 4) for part in rms.split(50)],
                "step_at_borders": round(float(steps[borders].mean()), 4),
                "step_elsewhere": round(float(steps[~borders].mean()), 4),
            }
            rows.append(row)
            print(row)
    return {"frames": STILL_FRAMES, "unit": "1/255", "rows": rows}


def vid4(names: Sequence[str], data: Path) -> dict[str, Any]:
    """PSNR of Y on all of Vid4 in float32, bfloat16 and both kinds of int8."""
    rows = []
    for name in names:
        protocol = "vid4-crf25" if name == "vsrt-s-web" else None
        for precision in ("float32", "int8", "int8-exact"):
            (result,) = evaluate_models(
                [name], data, protocol=protocol, metrics=["psnr"], precision=precision
            )
            rows.append(
                {
                    "model": name,
                    "protocol": result.protocol.name,
                    "type": result.precision,
                    "psnr": result.average["psnr"],
                    "clips": {clip.name: clip.metrics["psnr"] for clip in result.clips},
                }
            )
            first = next(r for r in rows if r["model"] == name)
            rows[-1]["loss_db"] = first["psnr"] - rows[-1]["psnr"]
            print({key: value for key, value in rows[-1].items() if key != "clips"}, flush=True)
    return {"rows": rows}


def whole_upscale(names: Sequence[str], data: Path) -> dict[str, Any]:
    """Time whole upscales of 40 frames of 320x180, encoding included: our models and BasicVSR."""
    rows = []
    with TemporaryDirectory() as folder:
        source = write_source(Path(folder), UPSCALED_FRAMES)
        rival = build_model("basicvsr-vimeo90k-bi").eval()
        cases: list[tuple[str, Any, PrecisionName]] = [("basicvsr", rival, "auto")]
        for name in names:
            cases += [(name, name, kind) for kind in ("auto", "int8", "int8-exact")]
        for title, model, precision in cases:
            options = UpscaleOptions(model=model, precision=precision, overwrite=True)
            times: list[float] = []
            for _ in range(1 if title == "basicvsr" else 2):
                begin = time.perf_counter()
                upscale_video(source, Path(folder) / "out.mkv", options=options)
                times.append((time.perf_counter() - begin) / UPSCALED_FRAMES)
            row = {"model": title, "precision": precision, "seconds_per_frame": min(times)}
            row["times_basicvsr"] = rows[0]["seconds_per_frame"] / min(times) if rows else 1.0
            rows.append(row)
            print(row, flush=True)
    return {"frames": UPSCALED_FRAMES, "threads": torch.get_num_threads(), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=("drift", "upscale", "vid4"))
    parser.add_argument("--models", nargs="+", default=("vsrt-s", "vsrt-s-web", "vsrt-m"))
    parser.add_argument("--data", type=Path, help="Vid4, or a video to stand still")
    arguments = parser.parse_args()
    if arguments.data is None and arguments.suite != "upscale":
        parser.error("give --data")
    suites: dict[str, Callable[[Sequence[str], Path], dict[str, Any]]] = {
        "drift": drift,
        "upscale": whole_upscale,
        "vid4": vid4,
    }
    result = suites[arguments.suite](arguments.models, arguments.data)
    path = RESULTS / f"int8-{arguments.suite}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
