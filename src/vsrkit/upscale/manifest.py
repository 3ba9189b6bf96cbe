"""Everything that decides the bytes of a job, by name, to be compared before it goes on."""

import av
import torch

from vsrkit import __version__
from vsrkit.models.weights import model_digest
from vsrkit.upscale.prepare import Prepared
from vsrkit.upscale.scan import fingerprint
from vsrkit.upscale.settings import Choices, Quality
from vsrkit.upscale.target import Target
from vsrkit.video.read import Source


def describe_settings(
    source: Source, prepared: Prepared, target: Target, quality: Quality, chosen: Choices
) -> dict[str, str]:
    """What is written into the manifest, for people as well."""
    begin, end = source.span
    engine, encoding = prepared.engine, prepared.encoding
    settings = {
        "input": fingerprint(source),
        "model": f"{prepared.model} {model_digest(engine.model)}",
        "precision": str(engine.precision),
        "device": engine.device.split(":")[0],
        "tile": chosen.describe_tile(engine.tile or 0),
        "quality": quality,
        "size": f"{prepared.width}x{prepared.height}",
        "start": str(begin),
        "end": str(end),
        "frame rate": str(source.info.frame_rate),
        "output": target.kind,
        "vsrkit": __version__,
        "torch": torch.__version__,
        "PyAV": av.__version__,
    }
    if encoding:
        settings |= {
            "codec": encoding.codec,
            "options": " ".join(f"{key}={value}" for key, value in encoding.options),
            "pixel format": encoding.pix_fmt,
            "colour": str(encoding.colour),
        }
    return settings
