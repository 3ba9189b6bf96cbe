"""An engine by name and digest, as it is sent to workers; they load each model once."""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import nn

from vsrkit.errors import WeightsError
from vsrkit.hardware.device import Precision
from vsrkit.inference.calibration import Calibration
from vsrkit.inference.engine import Engine, make_engine
from vsrkit.models.weights import model_digest
from vsrkit.models.zoo import MODELS, load_model, local_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReference:
    """A model and how to run it, small enough to be sent with every piece of work.

    name: of the model, or the path of a checkpoint.
    digest: of its class, configuration and weights, see `model_digest`.
    device: where it runs; a worker that was given a device of its own uses that one.
    sharpness: of the named model, see `load_model`.
    scratch, window_cache, calibration: as in `Engine`.
    model: the model itself if it cannot be loaded by its name.
    """

    name: str
    digest: str
    precision: Precision
    device: str = "cpu"
    tile: int | None = None
    sharpness: float | None = None
    scratch: Path | None = None
    window_cache: bool = True
    calibration: Calibration | None = field(default=None, repr=False)
    model: nn.Module | None = field(default=None, repr=False, compare=False)

    def load(self) -> nn.Module:
        """The model; it is loaded if this thread does not have it yet.

        Raises WeightsError if the weights of that name are others on this machine.
        """
        model = _kept.models.get(self.digest)
        if model is None:
            model = self.model
            if model is None:
                model = load_model(self.name, sharpness=self.sharpness)
            if (found := model_digest(model)) != self.digest:
                raise WeightsError(
                    f"the weights of {self.name} differ on this machine ({found} instead of "
                    f"{self.digest}); install the same ones on all machines"
                )
            keep_model(self.digest, model)
        return model

    def open(self) -> Engine:
        """The engine. It sets the memory layout of the model, which other engines share."""
        model = self.load()
        own = _kept.device if self.device != "cpu" else None
        engine = make_engine(
            model, precision=self.precision, device=own or self.device, tile=self.tile,
            calibration=self.calibration,
        )  # fmt: skip
        caches = engine.window_caches if self.window_cache else None
        return replace(engine, scratch=self.scratch, window_caches=caches)


class _Kept(threading.local):
    """The last model of a thread, and the device that its process was given."""

    def __init__(self) -> None:
        self.models: dict[str, nn.Module] = {}
        self.device: str | None = None


_kept = _Kept()


def keep_model(digest: str, model: nn.Module, device: str | None = None) -> None:
    """Keep a model for the references that are opened in this thread, in place of the last one.

    device: where this thread runs all models; None leaves that to the references.
    """
    _kept.models = {digest: model}
    _kept.device = device or _kept.device


def use_device(device: str) -> None:
    """Run the models of this thread on a device, whatever their references say but the CPU."""
    _kept.device = device


def refer(engine: Engine, name: str | None, sharpness: float | None = None) -> EngineReference:
    """A reference to an engine.

    name: that `load_model` takes; None for a model that has none, which is sent as it is. So is
        one without installed weights, which would get other initial ones elsewhere.
    sharpness: that the model was loaded with.
    """
    by_name = name is not None and (name not in MODELS or local_weights(name) is not None)
    if name is not None and name not in MODELS:
        name = str(Path(name).absolute())  # a worker has another current folder
    return EngineReference(
        name=name or type(engine.model).__name__,
        digest=model_digest(engine.model),
        precision=engine.precision,
        device=engine.device,
        tile=engine.tile,
        sharpness=sharpness,
        scratch=engine.scratch,
        window_cache=engine.window_caches is not None,
        calibration=engine.calibration,
        model=None if by_name else engine.model,
    )
