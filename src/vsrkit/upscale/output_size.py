"""The size of the output, from the options and what the model and FFmpeg can do."""

from vsrkit.errors import VideoError, VsrkitError
from vsrkit.models.spec import Spec
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.video.codecs import is_possible
from vsrkit.video.probe import VideoInfo


def output_size(
    info: VideoInfo, spec: Spec, *, scale: int | None, height: int | None
) -> tuple[int, int]:
    """(height, width) of the output as it is stored, before a rotation for display.

    scale: factor; None for that of the model.
    height: lines of the displayed picture, in place of a factor.
    """
    if height is not None:
        # With a rotation by 90 degrees the stored width is displayed as the height.
        sideways = bool(info.rotation % 180)
        lines, across = (info.width, info.height) if sideways else (info.height, info.width)
        if not 16 <= height <= 16 * lines:
            raise VsrkitError(
                f"--height {height} is out of range: 16 to {16 * lines} for a source of {lines}"
            )
        width = max(2, 2 * round(across * height / lines / 2))
        return (width, height) if sideways else (height, width)
    if scale is not None and not 1 <= scale <= spec.scale:
        raise VsrkitError(
            f"--scale {scale} is not possible: this model upscales by 1 to {spec.scale}"
        )
    factor = scale or spec.scale
    return info.height * factor, info.width * factor


def check_possible(info: VideoInfo, spec: Spec, height: int, width: int) -> None:
    """Raise VideoError for an output that FFmpeg cannot process, with a size that it can."""
    if is_possible(width, height):
        return
    scales = [s for s in range(1, spec.scale) if is_possible(s * info.width, s * info.height)]
    advice = "upscale a smaller input"
    if scales:
        best = scales[-1]
        advice = f"use --scale {best} for {best * info.width}x{best * info.height}"
    raise VideoError(
        f"{width}x{height} is larger than FFmpeg supports (about 268 million pixels); {advice}"
    )


def wanted_factor(info: VideoInfo, options: UpscaleOptions) -> float | None:
    """How many times larger the output will be; None for the scale of the model."""
    if options.height is not None:
        return options.height / (info.width if info.rotation % 180 else info.height)
    return options.scale
