"""What most tests of the job do: upscale by interpolation, and read what came of it."""

import av

from vsrkit import upscale_video


def decoded(path):
    with av.open(str(path)) as file:
        return list(file.decode(video=0))


def upscale(source, target, **options):
    return upscale_video(source, target, **{"model": "bicubic", **options})
