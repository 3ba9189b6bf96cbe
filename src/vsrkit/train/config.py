"""The settings of a training run: frozen dataclasses that pydantic validates.

A value of the wrong type or outside its range, and an unknown key, raise a `ConfigError` of one
line. The text below each field is its description in the JSON schema (`vsrkit train --schema`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat
from pydantic.dataclasses import dataclass

from vsrkit.hardware.device import TrainingPrecisionName
from vsrkit.train.settings import SETTINGS, ConfigError, Losses, Validated


def _as_tuple(value: Any) -> Any:
    """A list as a tuple, a single text, path or source as a tuple of one; others unchanged."""
    if isinstance(value, (str, Path, Mapping, Source)):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _as_source(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Source(**value)
    if not isinstance(value, (str, Path, Source)):
        raise ConfigError(f"data must be paths or tables with a path, got {value!r}")
    return value if isinstance(value, Source) else Source(path=str(value))


def _as_losses(value: Any) -> Any:
    return Losses(**value) if isinstance(value, Mapping) else value


Text: TypeAlias = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)
]
Texts: TypeAlias = Annotated[
    tuple[Text, ...], BeforeValidator(_as_tuple, json_schema_input_type=str | list[str])
]
# Weight files or models; the word none is for the command line.
WarmStarts: TypeAlias = Annotated[
    Texts, BeforeValidator(lambda value: () if value in ("none", ["none"], ("none",)) else value)
]
Count: TypeAlias = Annotated[int, Field(ge=1)]
# 0 stands for "auto".
BatchSize: TypeAlias = Annotated[
    NonNegativeInt,
    BeforeValidator(
        lambda value: 0 if value == "auto" else value, json_schema_input_type=int | Literal["auto"]
    ),
]
Below1: TypeAlias = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class Source(Validated):
    """One data set: a video file, a folder of videos or of folders of frames, or a named set."""

    path: Text
    """Video file, folder of videos, folder of folders of frames, or the name of a training set:
    reds-train or vimeo90k-train, which are in `data_root`."""
    weight: NonNegativeFloat = 1.0
    """How often clips are drawn from this source, relative to the other sources."""
    degradation: str = ""
    """How LR frames are made from this source; empty: as `degradation` of the run."""
    max_frames: Count = 3000
    """Frames taken from each video; the cache stores them uncompressed."""


Sources: TypeAlias = Annotated[
    tuple[Annotated[Source, BeforeValidator(_as_source, json_schema_input_type=str | Source)], ...],
    BeforeValidator(_as_tuple, json_schema_input_type=str | Source | list[str | Source]),
]


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class TrainConfig(Validated):
    """All settings of a training run; saved as `config.json` beside its checkpoints.

    One step of one process draws `batch_size` clips, `accumulate` times.
    """

    run_dir: Text
    """Folder for the config, the log, the checkpoints and the weights of the run."""
    data: Sources = ()
    """Data sources: paths, names of training sets (reds-train, vimeo90k-train), or tables with the
    keys path, weight, degradation and max_frames."""
    data_root: Text = ""
    """Folder of the training sets that `data` names, or a folder that holds them; empty: the
    environment variable VSRKIT_DATA."""
    degradation: str = "bi"
    """How LR frames are made from HR: bi, bd, bd-matlab12, crf25, crf15-35, realistic, footage and
    others (docs/train.md), or several joined by +, one of which is drawn for each clip."""
    model: Text = "vsrt-s"
    """Name of a model (new weights) or a weight file (its weights)."""
    warm_start: WarmStarts = ()
    """Weight files or names of models to copy fitting tensors from; "flow=FILE" fills only the
    part called flow. Weights that are not installed are downloaded. none: new weights only."""
    teacher: Text = ""
    """Name or weight file of a trained BasicVSR to learn from; empty: learn from HR frames."""
    teacher_mode: Literal["features", "frames"] = "features"
    """Target of the training. features: the features and frames of the teacher, for a vsrt-s or
    vsrt-m that is narrowed from it. frames: its frames of the clean clips, for any model."""
    teacher_weight: PositiveFloat = 0.3
    """Weight of the feature loss; the frame loss has 1. Only with teacher_mode = "features"."""
    teacher_frames: Count = 20
    """First frames of each clip that the teacher upscales and training uses; only with
    teacher_mode = "frames"."""
    teacher_hr_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of HR in the target frames, the rest is the teacher's output; only with
    teacher_mode = "frames"."""
    distinct_clips: NonNegativeInt = 0
    """Number of different crops, drawn repeatedly so that the teacher's features are computed once
    each; 0: no limit."""
    validation: Texts = ()
    """Patterns of the names of clips held out for validation; empty: the clips that a named set is
    validated on, of other data a share, `validation_share`."""
    validation_share: Below1 = 0.1
    """Share of the clips to hold out, in whole series."""
    validation_overlaps: bool = False
    """Train on the validation clips too, to test whether a model can overfit."""
    cache_dir: Text = ""
    """Folder for decoded frames; empty: below the cache folder of the system."""
    unreadable_limit: NonNegativeInt = 20
    """Largest number of unreadable frames that are skipped; more are an error."""

    steps: Count = 10_000
    """Number of optimizer steps."""
    batch_size: BatchSize = 4
    """Clips of each forward pass of each process. auto: as many as the memory of the device holds
    and total_batch_size needs."""
    total_batch_size: NonNegativeInt = 0
    """Clips of each step of all processes together, from which accumulate follows; 0: batch_size
    times accumulate times the number of processes."""
    accumulate: Count = 1
    """Forward passes of each step, which together have the gradient of one large batch."""
    frames: Count = 7
    """Frames of each training clip."""
    crop: Count = 64
    """Side of the training crop in LR pixels."""
    flips: bool = True
    """Flip horizontally, vertically and transpose, each with probability 1/2."""
    reversal: bool = True
    """Reverse clips in time with probability 1/2."""
    mirrored: bool = False
    """Append the frames of each clip in reverse order, so that a model sees twice as many; for
    recurrent models."""

    losses: Annotated[Losses, BeforeValidator(_as_losses)] = Losses()
    """Weights and options of the terms of the loss: pixel, perceptual, gan, steadiness,
    grid, spectrum and colour."""
    loss: Literal["charbonnier", "psnr"] = "charbonnier"
    """The term pixel. charbonnier: smoothed absolute error. psnr: logarithm of the square error of
    each clip."""
    steadiness: NonNegativeFloat = 0.0
    """Weight of the change along the motion, added to the square error; only with loss = "psnr"."""
    loss_reduction: Literal["mean", "sum"] = "mean"
    """Reduction of the Charbonnier loss over all values; the released code sums."""
    optimizer: Literal["adam", "muon"] = "adam"
    """muon: Muon for weights between feature maps, Adam for the others."""
    learning_rate: NonNegativeFloat = 2e-4
    """Peak learning rate."""
    flow_learning_rate_scale: NonNegativeFloat = 1.0
    """Factor of the learning rate of the flow network."""
    flow_frozen_steps: NonNegativeInt = 0
    """First steps in which the flow network is not trained."""
    betas: Annotated[tuple[Below1, Below1], BeforeValidator(_as_tuple)] = (0.9, 0.99)
    """Decay rates of Adam's moments."""
    schedule: Literal["cosine", "linear", "restarts", "constant"] = "cosine"
    """How the learning rate falls; restarts: one cosine for each of `periods`."""
    warmup_steps: NonNegativeInt = 0
    """Steps in which the learning rate rises linearly from 0."""
    minimum_learning_rate: NonNegativeFloat = 1e-7
    """Learning rate at the end of the schedule."""
    periods: Annotated[tuple[Count, ...], BeforeValidator(_as_tuple)] = ()
    """Steps of each cosine; only with schedule = "restarts"."""
    restart_weights: Annotated[tuple[NonNegativeFloat, ...], BeforeValidator(_as_tuple)] = ()
    """Factor of the learning rate in each period; only with schedule = "restarts"."""
    clip_gradients: NonNegativeFloat = 0.0
    """Largest norm of the gradient; 0: no clipping."""
    ema_decay: Below1 = 0.0
    """Decay of the running average of the weights, which is validated and saved; 0: no average."""
    refit: str = ""
    """Degradation for fitting the last convolution by least squares after the last step (vsrt-s and
    vsrt-m only); empty: do not refit."""
    refit_goal: Literal["hr", "no-grid"] = "hr"
    """hr: the frames of HR. no-grid: subpixels that are equally bright on average, for networks
    trained with perceptual losses; all else changes as little as possible."""

    precision: TrainingPrecisionName = "auto"
    """Number type of the forward pass; auto: the fastest one, measured on this machine. float16
    scales the loss, so that small gradients are not lost."""
    compile: bool = False
    """Compile the model and its loss with torch.compile; without, if that fails."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: a third of the memory, a third more time."""
    device: str = "auto"
    """auto (CUDA, else MPS, else the CPU), cpu, cuda, cuda:N or mps."""
    workers: NonNegativeInt = 1
    """Processes that prepare batches; 0: the training process prepares them itself."""
    seed: NonNegativeInt = 0
    """Seed of the initial weights and of the order of the training crops."""

    log_every: Count = 20
    """Steps between two lines of the log."""
    validate_every: Count = 500
    """Steps between two validations."""
    validation_metric: Literal["psnr_y", "lpips"] = "psnr_y"
    """Score of the validation clips, by which the best weights are chosen. lpips: of LPIPS, where
    lower is better; needs `vsrkit weights get lpips`."""
    validation_frames: Count = 9
    """Frames of each validation clip; the two at either end are not scored."""
    validation_crop: NonNegativeInt = 0
    """Side in LR pixels of the centre crop that is validated; 0: whole frames."""
    save_every: Count = 500
    """Steps between two checkpoints."""
    tensorboard: bool = False
    """Also log to TensorBoard."""

    def __post_init__(self) -> None:
        if not self.batch_size and not self.total_batch_size:
            raise ConfigError(
                'batch_size = "auto" needs total_batch_size, the clips of each step of all '
                "processes together"
            )
        if self.total_batch_size and self.accumulate > 1:
            raise ConfigError(
                f"accumulate follows from total_batch_size = {self.total_batch_size}; "
                f"leave accumulate = {self.accumulate} out"
            )
        if self.steadiness and self.loss != "psnr":
            raise ConfigError(
                f'steadiness needs loss = "psnr", got loss = "{self.loss}" and steadiness = '
                f"{self.steadiness}; change one of them"
            )
        if self.losses != Losses() and self.learns_features:
            raise ConfigError(
                'losses are not used with teacher_mode = "features"; remove them, or set '
                'teacher_mode = "frames"'
            )
        if self.mirrored and self.learns_features:
            raise ConfigError('mirrored clips are not used with teacher_mode = "features"')
        if not self.losses.pixels_only and self.sums_clips:
            raise ConfigError('losses with several terms need loss_reduction = "mean"')
        if self.teacher_hr_share and self.teacher_mode != "frames":
            raise ConfigError(
                'teacher_hr_share needs teacher_mode = "frames", got teacher_mode = '
                f'"{self.teacher_mode}"; change one of them'
            )
        if self.learns_frames and self.frames > self.teacher_frames:
            raise ConfigError(
                f"frames must be at most teacher_frames, got {self.frames} and "
                f"{self.teacher_frames}; raise teacher_frames or lower frames"
            )
        if self.schedule == "restarts" and len(self.periods) != len(self.restart_weights):
            raise ConfigError(
                f"restart_weights must have one number for each of the {len(self.periods)} "
                f"periods, got {len(self.restart_weights)}"
            )
        if self.schedule == "restarts" and sum(self.periods) < self.steps:
            raise ConfigError(
                f"periods must add up to at least steps = {self.steps}, got {sum(self.periods)}"
            )

    @property
    def sums_clips(self) -> bool:
        """Whether the loss of a batch is the sum over its clips, not their mean."""
        pixels = self.loss == "charbonnier" and not self.learns_features
        return pixels and self.loss_reduction == "sum"

    @property
    def learns_features(self) -> bool:
        """Whether the model learns the features and frames of a teacher."""
        return bool(self.teacher) and self.teacher_mode == "features"

    @property
    def learns_frames(self) -> bool:
        """Whether the model learns the frames of a teacher."""
        return bool(self.teacher) and self.teacher_mode == "frames"


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class FlowConfig(Validated):
    """All settings of a training of the light flow network."""

    run_dir: Text
    """Folder for the config, the log, the checkpoints and the weights of the run."""
    stills: Text
    """Folder of images, from which pairs with known motion are made."""
    clips: Text = ""
    """Folder of videos for training on real motion; empty: none."""
    validation: Texts = ()
    """Patterns of the names of clips held out for validation; empty: a tenth of them."""
    cache_dir: Text = ""
    """Folder for decoded frames; empty: below the cache folder of the system."""
    warm_start: Texts = ()
    """Weight files to copy fitting tensors from."""
    channels: Count = 48
    """Channels of the network."""
    levels: Count = 4
    """Levels of the image pyramid."""

    steps: Count = 6000
    """Number of optimizer steps."""
    real_from: NonNegativeInt = 3000
    """Step from which pairs of real clips are used, too."""
    real_weight: NonNegativeFloat = 1.0
    """Weight of the loss on real pairs."""
    batch_size: Count = 8
    """Pairs with known motion in each step."""
    real_batch_size: Count = 4
    """Real pairs in each step."""
    size: Count = 80
    """Side of the frames in LR pixels."""
    reach: NonNegativeFloat = 20.0
    """Largest known motion in LR pixels."""

    schedule: Literal["cosine", "constant"] = "cosine"
    """How the learning rate falls."""
    learning_rate: NonNegativeFloat = 1e-3
    """Peak learning rate."""
    minimum_learning_rate: NonNegativeFloat = 1e-6
    """Learning rate at the end of the schedule."""
    warmup_steps: NonNegativeInt = 100
    """Steps in which the learning rate rises linearly from 0."""
    clip_gradients: PositiveFloat = 1.0
    """Largest norm of the gradient."""
    ema_decay: Below1 = 0.998
    """Decay of the average of the weights that is validated and saved."""
    device: str = "auto"
    """auto (CUDA, else MPS, else the CPU), cpu, cuda, cuda:N or mps."""
    workers: NonNegativeInt = 1
    """Processes that prepare batches; 0: the training process prepares them itself."""
    seed: NonNegativeInt = 0
    """Seed of the initial weights and of the order of the training pairs."""
    log_every: Count = 50
    """Steps between two lines of the log."""
    validate_every: Count = 500
    """Steps between two validations."""
    save_every: Count = 500
    """Steps between two checkpoints."""


def to_dict(config: TrainConfig | FlowConfig) -> dict[str, Any]:
    """Plain values for `config.json`; `recipe.from_saved` returns the same config."""
    return json.loads(json.dumps(asdict(config)))
