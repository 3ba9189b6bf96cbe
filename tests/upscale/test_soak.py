"""Thirty seconds of video: every frame is written and memory does not grow."""

import subprocess
import sys

from tests.clips import write_clip

from vsrkit.video.read import open_source

SOAK = """
import resource, sys, torch
from vsrkit import UpscaleOptions, upscale_video

torch.set_num_threads(1)
peaks = {}
def note(progress):
    if progress.stage == "upscale":
        peaks[progress.done] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
options = UpscaleOptions(model="bicubic", max_memory="2G")
upscale_video(sys.argv[1], sys.argv[2], options=options, on_progress=note)
print(peaks[200], peaks[750], max(peaks))
"""


def test_thirty_seconds_in_flat_memory(tmp_path):
    source = write_clip(tmp_path / "in.mkv", frames=750, width=48, height=32)
    out = subprocess.run(
        [sys.executable, "-c", SOAK, str(source), str(tmp_path / "out.mkv")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    early, late, frames = map(int, out.stdout.split())
    assert frames == 750
    assert late <= 1.05 * early
    pictures = list(open_source(tmp_path / "out.mkv").pictures())
    assert [picture.time for picture in pictures] == [40 * n for n in range(750)]
