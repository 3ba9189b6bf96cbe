"""Train the variants of an ablation with equal steps and seeds inside a budget of time.

    folder/plan.json             the settings, and the steps that the budget holds; made once
    folder/runs/VARIANT/SEED/    a training run each, as `vsrkit train` leaves it
    folder/ablation.{md,csv,json,svg}

The same command again goes on where it was stopped.
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file

from vsrkit.data.clips import OnProgress
from vsrkit.errors import StoppedError, VsrkitError
from vsrkit.models.vsrt import VSRTConfig
from vsrkit.models.zoo import load_model, local_weights, save_model
from vsrkit.research.reproduce.ablation_settings import Settings
from vsrkit.research.reproduce.variants import OURS_FRAMES, Variant, variants_of
from vsrkit.train.checkpoint import write_json
from vsrkit.train.config import ConfigError, Source, TrainConfig
from vsrkit.train.loop import train

log = logging.getLogger("vsrkit")

LEAST_STEPS = 8
TIMED_STEPS = 4  # of each variant, the first not counted
VALIDATIONS = (8, 4, 2, 1)  # of each run: the most that take no more than this share of the time
VALIDATION_SHARE = 0.25
FLOW_SOURCE = "basicvsr-reds4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Settings with the number of steps, and what was timed to find it (if it was not given)."""

    settings: Settings
    steps: int
    validations: int  # of each run
    seconds_per_step: dict[str, float]


def run_ablation(
    settings: Settings, folder: Path, *, on_progress: OnProgress | None = None
) -> Plan:
    """Train every variant with every seed; finished runs are left alone, stopped ones go on."""
    variants = chosen_variants(settings)
    warm_flow(settings, folder)
    plan = make_plan(settings, variants, folder, on_progress)
    for seed in range(settings.seeds):
        for variant in variants:
            place = run_dir(folder, variant, seed)
            if is_finished(place, plan.steps):
                continue
            log.info("%s, seed %d: %d steps", variant.name, seed, plan.steps)
            config = config_of(
                variant,
                settings,
                folder,
                place,
                steps=plan.steps,
                validations=plan.validations,
                seed=seed,
            )
            _train(config, f"{variant.name}, seed {seed}", on_progress)
    return plan


def _train(config: TrainConfig, what: str, on_progress: OnProgress | None) -> None:
    resume = Path(config.run_dir, "state.safetensors").exists()
    try:
        train(config, resume=resume, on_progress=on_progress)
    except StoppedError as error:
        raise StoppedError(
            f"{what}: {str(error).split(';')[0]}; the same command again goes on there"
        ) from error


def chosen_variants(settings: Settings) -> list[Variant]:
    """Those that were asked for, the full model always among them."""
    known = variants_of(settings.model, settings.frames or OURS_FRAMES)
    names = [v.name for v in known]
    if unknown := [name for name in settings.variants if name not in names]:
        raise VsrkitError(f"no variant called {unknown[0]!r}; there are {', '.join(names)}")
    return [v for v in known if not settings.variants or v.name in ("full", *settings.variants)]


def run_dir(folder: Path, variant: Variant, seed: int) -> Path:
    """Where one training run has its files."""
    return folder / "runs" / variant.slug / str(seed)


def is_finished(place: Path, steps: int) -> bool:
    """Whether a run has been scored after its last step."""
    return any(step == steps for step, _ in read_log(place, "psnr_y"))


def read_log(place: Path, name: str) -> list[tuple[int, float]]:
    """(step, value) of each report of one number; after a resume the later report of a step."""
    path = place / "log.jsonl"
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    # A line without its end was being written when the run was killed.
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return sorted({line["step"]: line[name] for line in lines if name in line}.items())


def make_plan(
    settings: Settings, variants: Sequence[Variant], folder: Path, on_progress: OnProgress | None
) -> Plan:
    """The plan of the folder if there is one, else a new one by timing each variant."""
    path = folder / "plan.json"
    if path.is_file():
        plan = _read_plan(path)
        if plan.settings != settings:
            old, new = asdict(plan.settings), asdict(settings)
            changed = [f"{k} was {old[k]!r}" for k in old if old[k] != new[k]]
            raise ConfigError(
                f"{folder} holds an ablation with other settings ({', '.join(changed)}); "
                "give those again, or another --output"
            )
        return plan
    plan = _new_plan(settings, variants, folder, on_progress)
    write_json(path, asdict(plan))
    count = len(variants)
    log.info("%d steps of each of %d variants, %d seeds", plan.steps, count, settings.seeds)
    return plan


def _new_plan(
    settings: Settings, variants: Sequence[Variant], folder: Path, on_progress: OnProgress | None
) -> Plan:
    if settings.steps:
        return Plan(
            settings=settings, steps=settings.steps, validations=VALIDATIONS[0], seconds_per_step={}
        )
    begin = time.perf_counter()
    timed = {v.name: time_variant(v, settings, folder, on_progress) for v in variants}
    left = settings.budget_seconds - (time.perf_counter() - begin)
    seconds = {name: round(step, 4) for name, (step, _) in timed.items()}
    steps, validations = steps_within(left, timed, settings.seeds)
    return Plan(settings=settings, steps=steps, validations=validations, seconds_per_step=seconds)


def _read_plan(path: Path) -> Plan:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Plan(
        settings=Settings(**content["settings"]),
        steps=content["steps"],
        validations=content["validations"],
        seconds_per_step=content["seconds_per_step"],
    )


def steps_within(
    seconds: float, timed: dict[str, tuple[float, float]], seeds: int
) -> tuple[int, int]:
    """Steps and validations of each run, so that all of them fit."""
    per_step = seeds * sum(step for step, _ in timed.values())
    around = seeds * sum(extra for _, extra in timed.values())  # of one validation, about
    fitting = [v for v in VALIDATIONS if (v + 1) * around <= VALIDATION_SHARE * seconds]
    validations = fitting[0] if fitting else VALIDATIONS[-1]
    left = seconds - (validations + 1) * around  # one more for starting and saving
    if left < LEAST_STEPS * per_step:
        least = 2 * around + LEAST_STEPS * per_step
        raise VsrkitError(
            f"{max(0.0, seconds):.0f} s are left of the budget after timing, and {least:.0f} s "
            "are the least for these variants; give a larger --budget, fewer --variant or --steps"
        )
    return int(left / per_step), validations


def time_variant(
    variant: Variant, settings: Settings, folder: Path, on_progress: OnProgress | None
) -> tuple[float, float]:
    """Seconds of a step, and seconds around the steps: to start, to validate, to save."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".timing-", dir=folder) as scratch:
        place = Path(scratch) / "run"
        config = config_of(
            variant, settings, folder, place, steps=TIMED_STEPS, validations=1, seed=0
        )
        begin = time.perf_counter()
        _train(config, f"timing of {variant.name}", on_progress)
        whole = time.perf_counter() - begin
        steps = [seconds for _, seconds in read_log(place, "seconds")]
    step = sorted(steps[1:])[len(steps[1:]) // 2]
    return step, max(0.0, whole - sum(steps))


def config_of(
    variant: Variant,
    settings: Settings,
    folder: Path,
    place: Path,
    *,
    steps: int,
    validations: int,
    seed: int,
) -> TrainConfig:
    """The run of one variant and one seed; its fresh weights are written beside it."""
    start = place.parent / f"start-{seed}.safetensors"
    if not start.exists():
        torch.manual_seed(seed)
        start.parent.mkdir(parents=True, exist_ok=True)
        save_model(start, variant.build())
    warm = list(settings.warm_start)
    if settings.model == "vsrt-s-trained":
        warm.insert(0, "vsrt-s")  # what is missing there starts fresh
    if (flow := folder / "flow.safetensors").exists() and uses_spynet(variant):
        warm.append(f"flow={flow}")
    return TrainConfig(
        run_dir=str(place),
        data=(Source(path=settings.data, degradation=settings.degradation),),
        model=str(start),
        warm_start=tuple(warm),
        validation=settings.validation,
        validation_share=settings.held_out,
        validation_frames=7 if settings.model == "vsrt" else 17,  # ours carry along whole clips
        validation_crop=64,  # attention over whole frames would take most of the budget
        steps=steps,
        batch_size=settings.batch_size,
        frames=variant.frames,
        crop=settings.crop,
        optimizer="adam" if settings.model == "vsrt" else "muon",
        learning_rate=settings.learning_rate,
        # Muon makes large steps of a flow network's faint gradient: it drifts.
        flow_learning_rate_scale=0.1 if settings.model == "vsrt" else 0.0,
        minimum_learning_rate=settings.learning_rate / 100,
        warmup_steps=min(20, steps // 4),
        clip_gradients=0.5,
        ema_decay=0.99,  # the last steps of a short run scatter
        precision=settings.precision,
        device=settings.device,
        workers=settings.workers,
        seed=seed,
        log_every=max(1, steps // 50),
        validate_every=max(1, steps // validations),
        save_every=max(1, steps // 8),
    )


def uses_spynet(variant: Variant) -> bool:
    """Whether a variant has a SPyNet, which arrives trained in the paper."""
    config = variant.config
    return isinstance(config, VSRTConfig) and config.flow and config.feed_forward == "boff"


def warm_flow(settings: Settings, folder: Path) -> None:
    """Put a trained SPyNet into the folder, taken from BasicVSR's weights if they are at hand."""
    target = folder / "flow.safetensors"
    given = any(source.startswith("flow=") for source in settings.warm_start)
    if settings.model != "vsrt" or given or target.exists() or (folder / "plan.json").exists():
        return
    if local_weights(FLOW_SOURCE) is None:
        log.warning(
            "SPyNet starts untrained, which wrongs every variant that uses flow; "
            "`vsrkit weights get %s` brings a trained one",
            FLOW_SOURCE,
        )
        return
    folder.mkdir(parents=True, exist_ok=True)
    flow = load_model(FLOW_SOURCE).get_submodule("spynet")
    save_file({name: value.contiguous() for name, value in flow.state_dict().items()}, target)
    log.info("SPyNet starts as %s has it", FLOW_SOURCE)
