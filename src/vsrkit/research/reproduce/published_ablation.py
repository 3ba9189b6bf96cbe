"""Train the ablations of the paper's own network with the recipe of the published run.

    folder/plan.json                          the settings; written once
    folder/runs/VARIANT/start-SEED.safetensors    initial weights
    folder/runs/VARIANT/recipe-SEED.json      the recipe of the run, for `vsrkit train`
    folder/runs/VARIANT/SEED/                 the run, as written by `vsrkit train`
    folder/runs/VARIANT/SEED/scores.json      its scores after the last step

Running the same command again resumes where it was stopped. A run may also be trained by itself, on
this or another machine; the command then only scores it.
"""

import dataclasses
import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

import vsrkit
from vsrkit.data.clips import OnProgress
from vsrkit.data.sets import open_set
from vsrkit.errors import DataError, StoppedError, UsageError, VsrkitError
from vsrkit.hardware.device import FloatName
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.zoo import MODELS, save_model
from vsrkit.research.reproduce.ablation import (
    read_log,
    select_variants,
    train_or_resume,
    uses_spynet,
)
from vsrkit.research.reproduce.ablation_settings import THREE_FRAMES, Variant, changed
from vsrkit.train.config import Count, Source, Texts, TrainConfig, to_dict
from vsrkit.train.recipe import load_recipe
from vsrkit.train.run_files import STATE, write_json
from vsrkit.train.settings import SETTINGS, ConfigError, Validated
from vsrkit.train.warm_start import copy_matching

log = logging.getLogger("vsrkit")

PublishedModel: TypeAlias = Literal["vsrt-reds", "vsrt-paper"]
RECIPES = {"vsrt-reds": "vsrt_reds.py", "vsrt-paper": "vsrt_reds.py:paper"}
PUBLISHED_PROCESSES = 8  # GPUs of the published run; `batch_size` of its recipe is for each
HELD_OUT_FRAMES = 9  # scored of each clip if the data are not REDS
EXTENSIBLE = ("variants", "seeds", "device", "workers")  # may change when the command is repeated
WITHOUT_FLOW = "w/o optical flow"


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class PublishedSettings(Validated):
    """The settings of an ablation under the published recipe; 0 and () keep those of the recipe."""

    data: str
    model: PublishedModel = "vsrt-reds"
    variants: Texts = ()  # names; all if empty
    seeds: Count = 1
    channels: Annotated[int, Field(ge=0)] = 0
    steps: Annotated[int, Field(ge=0)] = 0  # fewer than the recipe's: its periods become shorter
    batch_size: Annotated[int, Field(ge=0)] = 0  # clips of a step of all processes together
    crop: Annotated[int, Field(ge=0)] = 0
    learning_rate: Annotated[float, Field(ge=0)] = 0.0
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2  # share of the clips, if not REDS
    validation: Texts = ()  # names of held-out clips instead of a share
    warm_start: Texts = ()
    precision: FloatName = "float32"
    device: str = ""
    workers: int = -1  # -1: those of the recipe


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedRun:
    """One training run of the ablation."""

    variant: Variant
    seed: int
    config: TrainConfig
    recipe: Path  # the config as a file
    clips: int  # of a step of all processes together

    @property
    def place(self) -> Path:
        """The folder of the run."""
        return Path(self.config.run_dir)

    @property
    def is_trained(self) -> bool:
        """Whether the last step is done and its weights are saved."""
        steps = [step for step, _ in read_log(self.place, "loss")]
        return self.config.steps in steps and (self.place / "last.safetensors").is_file()

    @property
    def resume(self) -> list[str]:
        """The option that continues a run, if there is one to continue."""
        return ["--resume"] if (self.place / STATE).exists() else []


def published_variants(model: VSRTConfig) -> list[Variant]:
    """The full network and the paper's ablations of it; the depth is the number of frames."""
    full = Variant(name="full", config=model, frames=model.frames, published="VSR-Transformer")
    three = changed(full, "3 frames", published=THREE_FRAMES, frames=3, depth=3)
    return [
        full,
        changed(full, "w/o STCSA", published="VSR-Transformer w/o STCSA", attention="none"),
        changed(full, "w/o BOFF", published="VSR-Transformer w/o BOFF", feed_forward="towers"),
        changed(full, WITHOUT_FLOW, flow=False),
        dataclasses.replace(three, frames=3),
    ]


def chosen_published_variants(settings: PublishedSettings) -> list[Variant]:
    """The variants that the settings select, always with the full network."""
    model: VSRTConfig = MODELS[settings.model].config
    if settings.channels:
        model = dataclasses.replace(model, channels=settings.channels)
    if settings.crop and model.size is not None:
        model = dataclasses.replace(model, size=settings.crop)
    return select_variants(published_variants(model), settings.variants)


def prepare_runs(settings: PublishedSettings, folder: Path, processes: int) -> list[PublishedRun]:
    """Write the plan, and the recipe and initial weights of each run; finished runs are kept.

    settings: of the ablation; must equal those of an existing plan.
    folder: of the ablation.
    processes: that train each run; their number does not change the clips of a step.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            "start `vsrkit reproduce ablation` once, without torchrun; --processes N trains "
            "each run with N processes"
        )
    check_plan(settings, folder / "plan.json")
    base = published_recipe(settings)
    variants = chosen_published_variants(settings)
    is_reds = has_reds4(Path(settings.data))
    if not is_reds:
        log.warning(
            "%s has no REDS4: the runs are scored on the middle of held-out clips, and their "
            "scores cannot be compared with the paper's",
            settings.data,
        )
    clips = settings.batch_size or base.batch_size * PUBLISHED_PROCESSES
    runs = []
    for seed in range(base.seed, base.seed + settings.seeds):
        for variant in variants:
            place = folder / "runs" / variant.slug / str(seed)
            config = run_config(base, variant, place, seed)
            if is_reds:
                config = dataclasses.replace(config, data_root=settings.data)
            else:
                config = with_own_clips(config, settings)
            batch_size, accumulate = share_batch(clips, processes, base.batch_size)
            config = dataclasses.replace(config, batch_size=batch_size, accumulate=accumulate)
            if not Path(config.model).exists():
                save_initial(Path(config.model), variant, variants[0], seed)
            recipe = place.parent / f"recipe-{seed}.json"
            write_json(recipe, to_dict(config))
            runs.append(PublishedRun(variant, seed, config, recipe, clips))
    return runs


def check_plan(settings: PublishedSettings, path: Path) -> None:
    """Write the settings to the plan; those that change a run must equal the ones it has."""
    if path.is_file():
        old = json.loads(path.read_text(encoding="utf-8"))["settings"]
        new = json.loads(json.dumps(dataclasses.asdict(settings)))
        different = [
            f"{k} was {v!r}" for k, v in old.items() if k not in EXTENSIBLE and v != new[k]
        ]
        if different:
            raise ConfigError(
                f"{path.parent} holds an ablation with other settings ({', '.join(different)}); "
                "use the same settings, or another --output"
            )
    write_json(path, {"settings": dataclasses.asdict(settings)})


def published_recipe(settings: PublishedSettings) -> TrainConfig:
    """The recipe of the published run with the values that the settings change."""
    name, _, function = RECIPES[settings.model].partition(":")
    inside, checkout = (root / "recipes" / name for root in recipe_roots())
    path = inside if inside.is_file() else checkout
    config = load_recipe(f"{path}:{function}" if function else str(path))
    assert isinstance(config, TrainConfig)
    values = {
        name: value
        for name in ("steps", "crop", "learning_rate", "warm_start", "device")
        if (value := getattr(settings, name))
    }
    if settings.workers >= 0:
        values["workers"] = settings.workers
    steps = settings.steps or config.steps
    return dataclasses.replace(
        config,
        **values,
        precision=settings.precision,
        # A shorter run has the same schedule in fewer steps.
        periods=tuple(ceil(period * steps / config.steps) for period in config.periods),
        log_every=min(config.log_every, max(1, steps // 50)),
    )


def recipe_roots() -> tuple[Path, Path]:
    """Where recipes are: in the installed package, or beside `src` in a checkout."""
    package = Path(vsrkit.__file__).parent
    return package, package.parent.parent


def has_reds4(data: Path) -> bool:
    """Whether a folder has the four test clips of REDS."""
    try:
        open_set("reds4", data, "bi", ())
    except DataError:
        return False
    return True


def run_config(base: TrainConfig, variant: Variant, place: Path, seed: int) -> TrainConfig:
    """The training config of one run, with the batch size of the recipe.

    base: the published recipe.
    variant: to train.
    place: folder of the run.
    seed: of the initial weights and of the batches.
    """
    warm = [s for s in base.warm_start if uses_spynet(variant) or not s.startswith("flow=")]
    return dataclasses.replace(
        base,
        run_dir=str(place),
        model=str(place.parent / f"start-{seed}.safetensors"),
        warm_start=tuple(warm),
        frames=variant.frames,
        seed=seed,
    )


def with_own_clips(config: TrainConfig, settings: PublishedSettings) -> TrainConfig:
    """The config with the clips of the settings, some of them held out, instead of REDS."""
    return dataclasses.replace(
        config,
        data=(Source(path=settings.data),),
        validation=settings.validation,
        validation_share=settings.held_out,
        validation_frames=HELD_OUT_FRAMES,
        validation_crop=config.crop,  # one tile of the networks that take only one size
    )


def share_batch(clips: int, processes: int, at_once: int) -> tuple[int, int]:
    """Clips of a forward pass, and passes of a step, of each process.

    clips: of a step of all processes together.
    processes: that share them.
    at_once: the most clips of a pass.
    """
    if clips % processes:
        raise UsageError(
            f"{processes} processes cannot share {clips} clips of a step equally; "
            "use another --processes or --batch-size"
        )
    each = clips // processes
    batch_size = next(n for n in range(min(at_once, each), 0, -1) if each % n == 0)
    return batch_size, each // batch_size


def save_initial(path: Path, variant: Variant, full: Variant, seed: int) -> None:
    """Write the initial weights of a variant: those of the full network where they fit."""
    models = []
    for each in (variant, full):
        torch.manual_seed(seed)
        models.append(VSRT(each.config))  # type: ignore[arg-type]  # of the published variants
    copy_matching(models[0], models[1].state_dict())
    path.parent.mkdir(parents=True, exist_ok=True)
    save_model(path, models[0])


def how_to_start(run: PublishedRun) -> str:
    """The command that trains or continues one run by itself, on up to eight GPUs."""
    processes = next(n for n in range(PUBLISHED_PROCESSES, 0, -1) if run.clips % n == 0)
    batch_size, accumulate = share_batch(run.clips, processes, run.config.batch_size)
    words = ["torchrun", "--nproc-per-node", str(processes), "-m", "vsrkit", "train"]
    words += [str(run.recipe), "--set", f"batch_size={batch_size}"]
    return shlex.join([*words, "--set", f"accumulate={accumulate}", *run.resume])


def train_runs(
    runs: Sequence[PublishedRun],
    processes: int,
    on_trained: Callable[[PublishedRun], None],
    on_progress: OnProgress | None = None,
) -> None:
    """Train all runs that are not finished, one after the other.

    runs: of `prepare_runs`.
    processes: of each run; more than one are started by torchrun.
    on_trained: called after each run, also after those that were finished before.
    on_progress: as for `train`.
    """
    for run in runs:
        what = f"{run.variant.name}, seed {run.seed}"
        if not run.is_trained and processes == 1:
            log.info("%s: %d steps", what, run.config.steps)
            train_or_resume(run.config, what, on_progress)
        elif not run.is_trained:
            log.info("%s: %d steps, %d processes", what, run.config.steps, processes)
            launch(run, processes, what)
        on_trained(run)


def launch(run: PublishedRun, processes: int, what: str) -> None:
    """Train a run with several processes and wait for them."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, f"--nproc-per-node={processes}", "-m", "vsrkit", "train"]
    try:
        code = subprocess.run([*command, str(run.recipe), *run.resume], check=False).returncode
    except KeyboardInterrupt:
        raise StoppedError(f"{what}: stopped; run the same command again to resume") from None
    if code:
        raise VsrkitError(
            f"{what}: its processes ended with code {code} (their messages are above); "
            "run the same command again to resume"
        )
