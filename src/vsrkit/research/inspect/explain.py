"""The page's sections: what was seen, drawn, and said in words for somebody who learns."""

from math import isfinite
from pathlib import Path

from torch import Tensor

from vsrkit.models.layers.resample import imresize
from vsrkit.research.inspect import draw
from vsrkit.research.inspect.attention import Attention
from vsrkit.research.inspect.features import Block
from vsrkit.research.inspect.findings import Inspection
from vsrkit.research.inspect.page import Figure, Section
from vsrkit.research.inspect.parts import Contribution
from vsrkit.research.inspect.sample import Sample


def sections(seen: Inspection, *, name: str, source: Path, trained: bool) -> list[Section]:
    """The whole page."""
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
        f"{name} has no trained weights here: everything below shows a network that has learnt "
        "nothing. `vsrkit weights list` says where there are any."
    )
    words = [
        f"{name} was given the {len(sample.numbers)} frames {_listed(sample.numbers)} of "
        f"{source.name}, {w}x{h} pixels around pixel {x},{y}, and asked for frame "
        f"{sample.numbers[sample.centre]}. It enlarges a part, not the whole frame, so that this "
        "page is made quickly. No model looks across a cut; a number that comes twice stands in "
        "for a frame outside of the shot.",
    ]
    clip = sample.clip[0].cpu()
    frames = [
        (f"frame {number}", _with_patch(clip[n], sample) if n == sample.centre else clip[n])
        for n, number in enumerate(sample.numbers)
    ]
    factor = seen.sr.shape[-1] // w
    bicubic = imresize(sample.frame.cpu(), factor).clamp(0, 1)
    figures = [
        Figure("whole", draw.marked(sample.whole, (*sample.corner, w, h)), "The chosen frame."),
        Figure(
            "frames",
            draw.strip(frames, width=160, columns=7),
            "What the model is given, in the order of time, the chosen pixel marked.",
        ),
        Figure(
            "output",
            draw.strip([("bicubic", bicubic), (name, seen.sr)], width=512),
            "The chosen frame enlarged by bicubic interpolation and by the model.",
        ),
    ]
    return Section("", words, figures, warning="" if trained else warning)


def _flow(seen: Inspection) -> Section:
    if not seen.has_flow:
        return Section("Flow", ["This model estimates no optical flow."])
    if not seen.motions:
        return Section("Flow", ["The shot has no frame that flow could lead to from this one."])
    words = [
        "Optical flow says for each pixel of the chosen frame where it is in a neighbour. The hue "
        "is the direction, as in the wheel, and the stronger the colour, the further it moved; "
        "white stays. With it the neighbour is warped: each pixel is fetched from where the flow "
        "says it is. If the flow is right, the warped neighbour looks like the chosen frame, and "
        "the network can add up what both saw of the same thing.",
        "The error picture shows what is left: bright edges are wrong flow, bright areas are "
        "things that were covered in the neighbour, or lay outside of it (black in the warped "
        "frame). The table compares the neighbour with the frame before and after warping, where "
        "it is covered: higher is more alike.",
    ]
    numbers = seen.sample.numbers
    most = draw.fastest([motion.flow for motion in seen.motions])
    figures = [Figure("flow-wheel", draw.flow_wheel(most), "The legend: direction and speed.")]
    table = [["flow", "mean speed", "neighbour as it is", "neighbour warped"]]
    clip = seen.sample.clip[0].cpu()
    worst = max(draw.nearly_most(motion.error.mean(0), 0.99) for motion in seen.motions)
    for motion in seen.motions:
        a, b = numbers[motion.frame], numbers[motion.neighbour]
        cells = [
            (f"flow {a} to {b}", draw.flow_colours(motion.flow, most)),
            (f"frame {b}", clip[motion.neighbour]),
            ("warped", motion.warped),
            ("error", draw.heat(motion.error.mean(0), worst)),
        ]
        name = f"flow-{motion.frame}-to-{motion.neighbour}"
        figures.append(Figure(name, draw.strip(cells), f"From frame {a} to frame {b}."))
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
    table = [["", *(f"frame {number}" for number in frames), "patches it looks at"]]
    table += [
        [
            layer.title,
            *(f"{100 * share:.1f} %" for share in layer.shares),
            f"{layer.patches:.1f} of {layer.of}",
        ]
        for layer in seen.attentions
    ]
    words = [
        seen.attentions[0].words,
        "The table says which share of the weights each frame gets, and how many patches the "
        "weights amount to: if it took the same from ten patches and nothing from others, ten.",
    ]
    figures = [_attention_figure(layer, seen.sample) for layer in seen.attentions]
    return Section("Attention", words, figures, table)


def _attention_figure(layer: Attention, sample: Sample) -> Figure:
    clip = sample.clip[0].cpu()
    most = float(layer.maps.max())
    cells = []
    for place, values, share in zip(layer.places, layer.maps, layer.shares, strict=True):
        picture = draw.over(clip[place], values, most)
        if place == sample.centre:
            picture = draw.marked(picture, layer.patch)
        cells.append((f"{sample.numbers[place]}: {100 * share:.1f}%", picture))
    name = f"attention-{layer.title.replace(' ', '-')}"
    caption = (
        f"{layer.title}: the brightest place has a weight of {100 * most:.2g} %; equal weights "
        f"would give each {100 / layer.of:.2g} %."
    )
    return Figure(name, draw.strip(cells, width=192, columns=5), caption)


def _features(blocks: list[Block]) -> Section:
    if not blocks:
        return Section("Features", ["This model has no learnt layers to look at."])
    words = [
        "Between its layers a network keeps a few dozen numbers for each pixel. Here the three "
        "directions in which they vary most are shown as red, green and blue: equal colours are "
        "equal features. The colours have no meaning of their own, but before and after a block "
        "they are the same ones, so that you see what it changed. The last picture of a row shows "
        "where it changed most, and the number how large the change is beside what was there.",
    ]
    figures = []
    for number, block in enumerate(blocks, 1):
        name = f"features-{number:02d}-{block.title.replace(', ', '-').replace(' ', '-')}"
        caption = f"{block.title}. {block.words}".strip()
        figures.append(Figure(name, _feature_strip(block), caption))
    return Section("Features", words, figures)


def _feature_strip(block: Block) -> Tensor:
    before, after = block.before, block.after
    if after.shape[0] == 3:
        picture, times = draw.amplified(after)
        return draw.strip([(f"x {times}", picture)], width=512)
    if before is None or before.shape != after.shape:
        return draw.strip([("after", draw.feature_colours([after])[0])])
    change = (after - before).square().mean(0).sqrt()
    whole = float(before.square().mean().sqrt())
    share = float(change.square().mean().sqrt()) / whole if whole > 0 else float("inf")
    left, right = draw.feature_colours([before, after])
    said = f"change {100 * share:.3g}%" if isfinite(share) else "change"
    return draw.strip([("before", left), ("after", right), (said, draw.heat(change))])


def _parts(contributions: list[Contribution]) -> Section:
    if not contributions:
        words = ["This model sees one frame and has no parts that can be switched off by name."]
        return Section("What each part is good for", words)
    words = [
        "The model runs once more for each of its parts, with that part switched off and "
        "everything else as it was. The difference to its whole output, at the top of this page, "
        "is what the part adds here, shown around grey and amplified. The table gives its size: "
        "the PSNR between both outputs, where 50 dB can hardly be seen and 30 dB clearly, and the "
        "root mean square in steps of 1/255. A network trained without a part would do better "
        "than this one with the part taken away: this shows what the part does, not what it is "
        "worth.",
    ]
    table = [["without", "PSNR to the whole output", "RMS difference"]]
    figures = []
    for number, part in enumerate(contributions, 1):
        nothing = not isfinite(part.psnr)
        size = "no difference" if nothing else f"{part.psnr:.2f} dB"
        table.append([part.title, size, f"{part.rms:.3f}"])
        picture, times = draw.amplified(part.difference)
        cells = [("without", part.without), (f"difference x {times}", picture)]
        name = f"part-{number:02d}-{part.title.replace(' ', '-')}"
        caption = f"Without {part.title} ({size}). {part.words}"
        figures.append(Figure(name, draw.strip(cells, width=512), caption))
    return Section("What each part is good for", words, figures, table)


def _with_patch(frame: Tensor, sample: Sample) -> Tensor:
    """The frame with its chosen pixel marked."""
    x, y = sample.pixel
    return draw.marked(frame, (x - 1, y - 1, 3, 3))


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
