"""Helpers for tests of whole jobs: upscale with bicubic unless told otherwise, decode a file."""

import av

from vsrkit import UpscaleOptions, upscale_video


def decoded(path):
    with av.open(str(path)) as file:
        return list(file.decode(video=0))


def upscale(source, target, *, on_progress=lambda _: None, executor=None, **options):
    given = UpscaleOptions(**{"model": "bicubic", **options})
    return upscale_video(source, target, options=given, on_progress=on_progress, executor=executor)
