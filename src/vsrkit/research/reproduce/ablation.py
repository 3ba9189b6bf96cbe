"""Train the variants of an ablation with equal steps and seeds within a time budget.

    folder/plan.json             the settings and the number of steps; written once
    folder/runs/VARIANT/SEED/    one training run, as written by `vsrkit train`
    folder/ablation.{md,csv,json,svg}

Running the same command again resumes where it was stopped.
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
from vsrkit.research.reproduce.ablation_settings import (
    PRESET_FRAMES,
    Settings,
    Variant,
    variants_of,
)
from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.loop import train
from vsrkit.train.run_files import write_json
from vsrkit.train.settings import ConfigError

log = logging.getLogger("vsrkit")

MIN_STEPS = 8
TIMED_STEPS = 4  # of each variant; the first is not counted
VALIDATIONS = (8, 4, 2, 1)  # of each run: the first that fits into VALIDATION_SHARE
VALIDATION_SHARE = 0.25  # of the time
FLOW_SOURCE = "basicvsr-reds4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Settings with the number of steps, and the timings it was computed from (unless given)."""

    settings: Settings
    steps: int
    validations: int  # of each run
    seconds_per_step: dict[str, float]


def run_ablation(
    settings: Settings, folder: Path, *, on_progress: OnProgress | None = None
) -> Plan:
    """Train every variant with every seed; finished runs are kept, stopped ones are resumed.

    settings: of the ablation.
    folder: of the plan and the runs.
    on_progress: as for `train`.
    """
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
            train_or_resume(config, f"{variant.name}, seed {seed}", on_progress)
    return plan


def train_or_resume(config: TrainConfig, what: str, on_progress: OnProgress | None) -> None:
    """Train one run, from its last state if it has one.

    config: of the run.
    what: the name of the run in messages.
    on_progress: as for `train`.
    """
    resume = Path(config.run_dir, "state.safetensors").exists()
    try:
        train(config, resume=resume, on_progress=on_progress)
    except StoppedError as error:
        raise StoppedError(
            f"{what}: {str(error).split(';')[0]}; run the same command again to resume"
        ) from error


def chosen_variants(settings: Settings) -> list[Variant]:
    """The variants that the settings select, always with the full model."""
    known = variants_of(settings.model, settings.frames or PRESET_FRAMES)
    return select_variants(known, settings.variants)


def select_variants(known: Sequence[Variant], chosen: Sequence[str]) -> list[Variant]:
    """The variants of these names, or all, always with the full model."""
    names = [v.name for v in known]
    if unknown := [name for name in chosen if name not in names]:
        raise VsrkitError(f"no variant called {unknown[0]!r}; known variants: {', '.join(names)}")
    return [v for v in known if not chosen or v.name in ("full", *chosen)]


def run_dir(folder: Path, variant: Variant, seed: int) -> Path:
    """The folder of one training run."""
    return folder / "runs" / variant.slug / str(seed)


def is_finished(place: Path, steps: int) -> bool:
    """Whether a run has been scored after its last step."""
    return any(step == steps for step, _ in read_log(place, "psnr_y"))


def read_log(place: Path, name: str) -> list[tuple[int, float]]:
    """(step, value) of each log line that has a value; after a resume the later line counts."""
    path = place / "log.jsonl"
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    # A last line without its newline is incomplete: the run was killed while writing it.
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return sorted({line["step"]: line[name] for line in lines if name in line}.items())


def make_plan(
    settings: Settings, variants: Sequence[Variant], folder: Path, on_progress: OnProgress | None
) -> Plan:
    """Read the plan of the folder, or write a new one after timing each variant.

    settings: of the ablation; must equal those of an existing plan.
    variants: to train.
    folder: of the ablation.
    on_progress: as for `train`.
    """
    path = folder / "plan.json"
    if path.is_file():
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        plan = Plan(**content | {"settings": Settings(**content["settings"])})
        if plan.settings != settings:
            old, new = asdict(plan.settings), asdict(settings)
            changed = [f"{k} was {old[k]!r}" for k in old if old[k] != new[k]]
            raise ConfigError(
                f"{folder} holds an ablation with other settings ({', '.join(changed)}); "
                "use the same settings, or another --output"
            )
        return plan
    plan = _new_plan(settings, variants, folder, on_progress)
    write_json(path, asdict(plan))
    log.info("%d steps of each of %d variants, %d seeds", plan.steps, len(variants), settings.seeds)
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


def steps_within(
    seconds: float, timed: dict[str, tuple[float, float]], seeds: int
) -> tuple[int, int]:
    """The numbers of steps and of validations of each run with which all runs fit.

    seconds: for all runs.
    timed: for each variant, seconds of a step, and seconds to start, validate and save.
    seeds: runs of each variant.
    """
    per_step = seeds * sum(step for step, _ in timed.values())
    overhead = seeds * sum(extra for _, extra in timed.values())  # of about one validation
    fitting = [v for v in VALIDATIONS if (v + 1) * overhead <= VALIDATION_SHARE * seconds]
    validations = fitting[0] if fitting else VALIDATIONS[-1]
    left = seconds - (validations + 1) * overhead  # one more for start and save
    if left < MIN_STEPS * per_step:
        least = 2 * overhead + MIN_STEPS * per_step
        raise VsrkitError(
            f"{max(0.0, seconds):.0f} s of the budget are left after timing, but these variants "
            f"need {least:.0f} s; use a larger --budget, fewer --variant, or --steps"
        )
    return int(left / per_step), validations


def time_variant(
    variant: Variant, settings: Settings, folder: Path, on_progress: OnProgress | None
) -> tuple[float, float]:
    """Seconds of a step, and seconds to start, validate and save."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".timing-", dir=folder) as scratch:
        place = Path(scratch) / "run"
        config = config_of(
            variant, settings, folder, place, steps=TIMED_STEPS, validations=1, seed=0
        )
        begin = time.perf_counter()
        train_or_resume(config, f"timing of {variant.name}", on_progress)
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
    """The training config of one variant and seed; its initial weights are written to a file.

    variant: to train.
    settings: of the ablation.
    folder: of the ablation.
    place: the folder of the run.
    steps, validations: of the run.
    seed: of the initial weights and of the run.
    """
    start = place.parent / f"start-{seed}.safetensors"
    if not start.exists():
        torch.manual_seed(seed)
        start.parent.mkdir(parents=True, exist_ok=True)
        save_model(start, variant.build())
    warm = list(settings.warm_start)
    if settings.model == "vsrt-s-trained":
        warm.insert(0, "vsrt-s")  # parts that vsrt-s does not have keep their random weights
    if (flow := folder / "flow.safetensors").exists() and uses_spynet(variant):
        warm.append(f"flow={flow}")
    return TrainConfig(
        run_dir=str(place),
        data=(Source(path=settings.data, degradation=settings.degradation),),
        model=str(start),
        warm_start=tuple(warm),
        validation=settings.validation,
        validation_share=settings.held_out,
        validation_frames=7 if settings.model == "vsrt" else 17,  # presets use whole clips
        validation_crop=64,  # attention over whole frames would use most of the budget
        steps=steps,
        batch_size=settings.batch_size,
        frames=variant.frames,
        crop=settings.crop,
        optimizer="adam" if settings.model == "vsrt" else "muon",
        learning_rate=settings.learning_rate,
        # Muon turns the small gradient of a flow network into large steps, which make it worse.
        flow_learning_rate_scale=0.1 if settings.model == "vsrt" else 0.0,
        minimum_learning_rate=settings.learning_rate / 100,
        warmup_steps=min(20, steps // 4),
        clip_gradients=0.5,
        ema_decay=0.99,  # the last steps of a short run are noisy
        precision=settings.precision,
        device=settings.device,
        workers=settings.workers,
        seed=seed,
        log_every=max(1, steps // 50),
        validate_every=max(1, steps // validations),
        save_every=max(1, steps // 8),
    )


def uses_spynet(variant: Variant) -> bool:
    """Whether a variant has a SPyNet, which starts with trained weights in the paper."""
    config = variant.config
    return isinstance(config, VSRTConfig) and config.flow and config.feed_forward == "boff"


def warm_flow(settings: Settings, folder: Path) -> None:
    """Write a trained SPyNet into the folder, from the weights of BasicVSR if they are stored."""
    target = folder / "flow.safetensors"
    given = any(source.startswith("flow=") for source in settings.warm_start)
    if settings.model != "vsrt" or given or target.exists() or (folder / "plan.json").exists():
        return
    if local_weights(FLOW_SOURCE) is None:
        log.warning(
            "SPyNet starts untrained, a disadvantage for every variant with flow; "
            "`vsrkit weights get %s` downloads a trained one",
            FLOW_SOURCE,
        )
        return
    folder.mkdir(parents=True, exist_ok=True)
    flow = load_model(FLOW_SOURCE).get_submodule("spynet")
    save_file({name: value.contiguous() for name, value in flow.state_dict().items()}, target)
    log.info("SPyNet starts with the weights of %s", FLOW_SOURCE)
