"""The contribution of each part of a model: its output with and without the part."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt

from torch import Tensor, nn

from vsrkit.evaluate.metrics import psnr
from vsrkit.models.anatomy import Anatomy, Replacement, Switch
from vsrkit.models.spec import Window
from vsrkit.research.inspect.clip_sample import Sample

# Applies to every model that takes several frames; replaces the clip instead of outputs.
OTHER_FRAMES = Switch(
    "the other frames",
    "Every other frame is replaced by a copy of the chosen one, as in a clip without motion. The "
    "difference is the gain from the detail of the other frames.",
    (),
)


@dataclass(frozen=True, slots=True)
class Contribution:
    """The output without a part, and how far it is from the output with it."""

    title: str
    description: str
    without: Tensor  # (3, sH, sW)
    difference: Tensor  # with - without
    psnr: float  # between both outputs, in dB: infinite if the part changes nothing
    rms: float  # of the difference, in steps of 1/255


def contributions(
    model: nn.Module,
    anatomy: Anatomy,
    sample: Sample,
    sr: Tensor,
    on_progress: Callable[[str, int, int], None],
) -> list[Contribution]:
    """Run the model once without each of its parts.

    model: on the device of the sample.
    anatomy: its parts.
    sample: the clip and the chosen frame.
    sr: the whole output for that frame, (3, sH, sW).
    on_progress: called with a description, the number of finished runs, and of all runs.
    """
    found = []
    parts = switches(anatomy, sample)
    still = sample.frame.expand_as(sample.clip)
    for number, part in enumerate(parts):
        on_progress(f"without {part.title}", number, len(parts))
        modules = [model.get_submodule(name) for name in part.modules]
        with replace_outputs(modules, part.replace):
            clip = still if part is OTHER_FRAMES else sample.clip
            without = upscale_one(model, clip, sample.centre)
        difference = sr - without
        decibels = psnr(255 * sr.double(), 255 * without.double())
        rms = 255 * sqrt(float(difference.double().square().mean()))
        shown = (without.cpu(), difference.cpu())
        found.append(Contribution(part.title, part.description, *shown, decibels, rms))
    return found


def switches(anatomy: Anatomy, sample: Sample) -> list[Switch]:
    """The parts that are switched off: the other frames, if there are any, and the model's own."""
    return [*([OTHER_FRAMES] if sample.clip.shape[1] > 1 else []), *anatomy.switches]


@contextmanager
def replace_outputs(modules: Sequence[nn.Module], replacement: Replacement) -> Iterator[None]:
    """Replace the outputs of these modules inside the block."""
    handles = [
        module.register_forward_hook(lambda _, args, output: replacement(args, output))
        for module in modules
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def upscale_one(model: nn.Module, clip: Tensor, frame: int) -> Tensor:
    """Upscale one frame of a clip (1, T, 3, H, W): (3, sH, sW) in [0, 1]."""
    context = model.spec.context  # type: ignore[union-attr]
    if isinstance(context, Window) and context.emits == "centre":
        sr = model(clip)
    else:
        sr = model(clip, keep=slice(frame, frame + 1))
    return sr[0, 0].clamp(0, 1)
