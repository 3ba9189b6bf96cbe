"""Ranges of activations for int8: measured on a few clips, stored for the weights they belong to.

A file NAME.int8.json beside the weights, or DIGEST.int8.json in the cache folder, has the ranges
and what int8 costs in quality, measured on other clips (`evaluate/calibrate.py`).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Int8Name
from vsrkit.hardware.files import cache_directory
from vsrkit.hardware.int8 import int8_fault
from vsrkit.models.layers.int8 import Ranges, quantised
from vsrkit.models.weights import model_digest
from vsrkit.models.zoo import SHIPPED

log = logging.getLogger("vsrkit")

SUFFIX = ".int8.json"
NEGLIGIBLE_DB = 0.005  # loss up to which `auto` may take int8


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Ranges of the parts of a model, and the loss of quality.

    weights: digest of the model, see `model_digest`
    ranges: by the names of the modules
    loss: mean loss of PSNR (Y) in dB against float32 by kind of int8; empty if not measured
    clips: what the ranges were measured on, in words
    """

    weights: str
    ranges: Mapping[str, Ranges]
    loss: Mapping[Int8Name, float] = field(default_factory=dict)
    clips: str = ""

    def __str__(self) -> str:
        return f"of {self.clips}"

    @property
    def negligible(self) -> list[Int8Name]:
        """The kinds of int8 whose loss is known and negligible."""
        return [kind for kind, loss in self.loss.items() if loss < NEGLIGIBLE_DB]

    def dump(self) -> str:
        """As JSON."""
        return _FILE.dump_json(self, indent=1).decode() + "\n"


_FILE = TypeAdapter(Calibration)


def find_calibration(model: nn.Module) -> Calibration | None:
    """The stored calibration of a model's weights; None if there is none."""
    return _stored(model_digest(model), cache_directory())


def calibration_path(digest: str) -> Path:
    """Where the calibration of weights outside of the package is stored."""
    return cache_directory() / "weights" / f"{digest}{SUFFIX}"


def _stored(digest: str, cache: Path) -> Calibration | None:
    for path in (*sorted(SHIPPED.glob(f"*{SUFFIX}")), cache / "weights" / f"{digest}{SUFFIX}"):
        try:
            found = _FILE.validate_json(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValidationError):
            log.warning("%s cannot be read; int8 is calibrated again", path)
            continue
        if found.weights == digest:
            return found
    return None


def with_int8(model: nn.Module, kind: Int8Name, calibration: Calibration | None) -> nn.Module:
    """A copy of a model with parts in int8."""
    if calibration is None:
        raise VsrkitError(
            f"{kind} needs a calibration of {type(model).__name__}, and none is stored "
            "for its weights; make one by `vsrkit weights calibrate`"
        )
    if fault := int8_fault():
        raise VsrkitError(f"{fault}; choose another precision")
    return quantised(model, calibration.ranges, exact=kind == "int8-exact")
