"""The page of `vsrkit inspect`: figures, tables and text that explain an inspection."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import resolve_device
from vsrkit.hardware.files import write_atomically
from vsrkit.models.layers.resample import imresize
from vsrkit.models.spec import Spec
from vsrkit.models.zoo import MODELS, load_model, local_weights
from vsrkit.research.inspect import draw
from vsrkit.research.inspect.attention import Attention
from vsrkit.research.inspect.clip_sample import Sample, take_sample
from vsrkit.research.inspect.features import Block
from vsrkit.research.inspect.inspection import Inspection, as_json, inspect_model
from vsrkit.research.inspect.page import Figure, Section, write_page
from vsrkit.research.inspect.switches import Contribution

SMALLEST_SIDE = 32
USUAL_SIDE, SIDE_OF_LARGE = 128, 64  # a large network would take many minutes for more
LARGE = 10_000_000  # parameters


def inspect_clip(
    source: Path,
    model: str,
    output: Path,
    *,
    frame: int | None = None,
    pixel: tuple[int, int] | None = None,
    side: int | None = None,
    device: str = "auto",
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Path]:
    """Inspect a model on a clip; write PNG files, index.html and numbers.json.

    source: a video or a folder of frames.
    model: a name of the zoo or a weight file.
    output: the folder to write to.
    frame: number of the frame, from 0; by default the middle one.
    pixel: (x, y) in that frame; by default the middle one.
    side: of the square around the pixel; by default 128, or 64 for a large network.
    device: as for `resolve_device`.
    on_progress: called with a description, the number of finished runs, and of all runs.

    Returns the files that were written.
    """
    device = resolve_device(device)
    if side is not None and side < SMALLEST_SIDE:
        raise VsrkitError(f"the side must be at least {SMALLEST_SIDE} pixels, got {side}")
    loaded, trained = _load(model)
    spec: Spec = loaded.spec  # type: ignore[assignment]
    size = sum(parameter.numel() for parameter in loaded.parameters())
    side = side or (SIDE_OF_LARGE if size > LARGE else USUAL_SIDE)
    sample = take_sample(source, spec, frame=frame, pixel=pixel, side=side)
    sample = replace(sample, clip=sample.clip.to(device))
    inspection = inspect_model(loaded.to(device), sample, on_progress)
    name, number = Path(model).stem, sample.numbers[sample.centre]
    files = write_page(
        output,
        f"How {name} upscales frame {number} of {source.name}",
        sections(inspection, name=name, source=source, trained=trained),
    )
    facts = {"model": name, "clip": str(source), "trained": trained, **as_json(inspection)}
    write_atomically(output / "numbers.json", json.dumps(facts, indent=2) + "\n")
    return [*files, output / "numbers.json"]


def _load(name: str) -> tuple[nn.Module, bool]:
    """A model, and whether its weights are trained; random weights are the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = load_model(name).eval()
    untrained = name in MODELS and local_weights(name) is None
    return model, not untrained or not any(True for _ in model.parameters())


def sections(seen: Inspection, *, name: str, source: Path, trained: bool) -> list[Section]:
    """All sections of the page.

    seen: the results of the inspection.
    name: of the model.
    source: of the clip.
    trained: whether the model has trained weights; if not, the page starts with a warning.
    """
    return [
        _input(seen, name, source, trained),
        _flow(seen),
        _attention(seen),
        _features(seen.blocks),
        _parts(seen.contributions),
    ]


def _input(seen: Inspection, name: str, source: Path, trained: bool) -> Section:
    sample = seen.sample
    h, w = sample.frame.shape[-2:]
    x, y = (a + b for a, b in zip(sample.pixel, sample.corner, strict=True))
    warning = (
        f"{name} has no trained weights here: everything below shows a network with random "
        "weights. `vsrkit weights list` shows where to get trained ones."
    )
    words = [
        f"{name} upscales frame {sample.numbers[sample.centre]} of {source.name} from the "
        f"{len(sample.numbers)} frames {', '.join(map(str, sample.numbers))}, {w}x{h} pixels "
        f"around pixel {x},{y}. Only this part of the frame is upscaled, so that the page is "
        "written quickly. Frames beyond a cut are not used; a number that occurs twice replaces a "
        "frame outside the shot.",
    ]
    clip = sample.clip[0].cpu()
    frames = [(f"frame {number}", clip[n]) for n, number in enumerate(sample.numbers)]
    pixel = (sample.pixel[0] - 1, sample.pixel[1] - 1, 3, 3)
    frames[sample.centre] = (frames[sample.centre][0], draw.marked(clip[sample.centre], pixel))
    factor = seen.sr.shape[-1] // w
    bicubic = imresize(sample.frame.cpu(), factor).clamp(0, 1)
    figures = [
        Figure("whole", draw.marked(sample.whole, (*sample.corner, w, h)), "The chosen frame."),
        Figure(
            "frames",
            draw.grid(frames, width=160, columns=7),
            "The input of the model in order of time, with the chosen pixel marked.",
        ),
        Figure(
            "output",
            draw.grid([("bicubic", bicubic), (name, seen.sr)], width=512),
            "The chosen frame enlarged by bicubic interpolation and by the model.",
        ),
    ]
    return Section("", words, figures, warning="" if trained else warning)


def _flow(seen: Inspection) -> Section:
    if not seen.has_flow:
        return Section("Flow", ["This model estimates no optical flow."])
    if not seen.motions:
        return Section("Flow", ["The shot has no other frame, so there is no flow."])
    words = [
        "Optical flow gives, for each pixel of the chosen frame, its position in a neighbouring "
        "frame. The hue is the direction, as in the wheel, and the saturation is the distance; "
        "white is no motion. The neighbour is warped by the flow: each pixel is taken from the "
        "position that the flow gives. If the flow is correct, the warped neighbour looks like the "
        "chosen frame, and the network can combine the detail of both.",
        "The error picture is the remaining difference: bright edges are wrong flow, bright areas "
        "were covered in the neighbour or outside it (black in the warped frame). The table "
        "compares the neighbour with the frame before and after warping, where the warped "
        "neighbour covers the frame: higher is more similar.",
    ]
    numbers = seen.sample.numbers
    most = draw.top_speed([motion.flow for motion in seen.motions])
    figures = [Figure("flow-wheel", draw.flow_wheel(most), "The legend: direction and speed.")]
    table = [["flow", "mean speed", "neighbour, not warped", "neighbour, warped"]]
    clip = seen.sample.clip[0].cpu()
    worst = max(draw.quantile(motion.error.mean(0), 0.99) for motion in seen.motions)
    for motion in seen.motions:
        a, b = numbers[motion.frame], numbers[motion.neighbour]
        cells = [
            (f"flow {a} to {b}", draw.flow_colours(motion.flow, most)),
            (f"frame {b}", clip[motion.neighbour]),
            ("warped", motion.warped),
            ("error", draw.heat(motion.error.mean(0), worst)),
        ]
        name = f"flow-{motion.frame}-to-{motion.neighbour}"
        figures.append(Figure(name, draw.grid(cells), f"From frame {a} to frame {b}."))
        table.append(
            [
                f"{a} to {b}",
                f"{float(motion.flow.norm(dim=0).mean()):.2f} px",
                f"{motion.psnr_still:.2f} dB",
                f"{motion.psnr:.2f} dB",
            ]
        )
    return Section("Flow and warping", words, figures, table)


def _attention(seen: Inspection) -> Section:
    if not seen.attentions:
        return Section("Attention", ["This model has no attention over places or frames."])
    frames = [seen.sample.numbers[place] for place in seen.attentions[0].places]
    table = [["", *(f"frame {number}" for number in frames), "effective patches"]]
    table += [
        [
            layer.title,
            *(f"{100 * share:.1f} %" for share in layer.shares),
            f"{layer.patches:.1f} of {layer.of}",
        ]
        for layer in seen.attentions
    ]
    words = [
        seen.attentions[0].description,
        "The table gives the share of the weights of each frame, and the effective number of "
        "patches: equal weights on ten patches and none on the others give ten.",
    ]
    figures = [_attention_figure(layer, seen.sample) for layer in seen.attentions]
    return Section("Attention", words, figures, table)


def _attention_figure(layer: Attention, sample: Sample) -> Figure:
    clip = sample.clip[0].cpu()
    most = float(layer.maps.max())
    cells = []
    for place, values, share in zip(layer.places, layer.maps, layer.shares, strict=True):
        picture = draw.overlay(clip[place], values, most)
        if place == sample.centre:
            picture = draw.marked(picture, layer.patch)
        cells.append((f"{sample.numbers[place]}: {100 * share:.1f}%", picture))
    name = f"attention-{layer.title.replace(' ', '-')}"
    caption = (
        f"{layer.title}: the largest weight is {100 * most:.2g} %; equal weights would be "
        f"{100 / layer.of:.2g} % each."
    )
    return Figure(name, draw.grid(cells, width=192, columns=5), caption)


def _features(blocks: list[Block]) -> Section:
    if not blocks:
        return Section("Features", ["This model has no learnt layers."])
    words = [
        "Between its layers a network has a few dozen features for each pixel. Their three "
        "principal components are shown as red, green and blue: equal colours are equal features. "
        "The colours have no meaning of their own, but are the same before and after a block, so "
        "that its effect is visible. The last picture of a row shows where the block changed the "
        "features, and its caption the size of the change relative to the features before.",
    ]
    figures = []
    for number, block in enumerate(blocks, 1):
        name = f"features-{number:02d}-{block.title.replace(', ', '-').replace(' ', '-')}"
        caption = f"{block.title}. {block.description}".strip()
        figures.append(Figure(name, _feature_strip(block), caption))
    return Section("Features", words, figures)


def _feature_strip(block: Block) -> Tensor:
    before, after = block.before, block.after
    if after.shape[0] == 3:
        picture, times = draw.amplified(after)
        return draw.grid([(f"x {times}", picture)], width=512)
    if before is None or before.shape != after.shape:
        return draw.grid([("after", draw.feature_colours([after])[0])])
    change = (after - before).square().mean(0).sqrt()
    whole = float(before.square().mean().sqrt())
    share = float(change.square().mean().sqrt()) / whole if whole > 0 else float("inf")
    left, right = draw.feature_colours([before, after])
    label = f"change {100 * share:.3g}%" if isfinite(share) else "change"
    return draw.grid([("before", left), ("after", right), (label, draw.heat(change))])


def _parts(contributions: list[Contribution]) -> Section:
    if not contributions:
        words = ["This model takes one frame and lists no parts that can be switched off."]
        return Section("What each part contributes", words)
    words = [
        "The model runs once more for each of its parts, with only that part switched off. The "
        "difference to the whole output, at the top of this page, is the contribution of the "
        "part, shown around grey and amplified. The table gives its size: the PSNR between both "
        "outputs (50 dB is hardly visible, 30 dB clearly), and the root mean square in steps of "
        "1/255. A network trained without a part would be better than this one with the part "
        "switched off: this shows the effect of the part, not its value.",
    ]
    table = [["without", "PSNR to the whole output", "RMS difference"]]
    figures = []
    for number, part in enumerate(contributions, 1):
        size = f"{part.psnr:.2f} dB" if isfinite(part.psnr) else "no difference"
        table.append([part.title, size, f"{part.rms:.3f}"])
        picture, times = draw.amplified(part.difference)
        cells = [("without", part.without), (f"difference x {times}", picture)]
        name = f"part-{number:02d}-{part.title.replace(' ', '-')}"
        caption = f"Without {part.title} ({size}). {part.description}"
        figures.append(Figure(name, draw.grid(cells, width=512), caption))
    return Section("What each part contributes", words, figures, table)
