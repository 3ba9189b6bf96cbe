"""Watching: what is finished of a job is what the result will be, frame by frame."""

import io
from base64 import b64encode
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from tests.clips import write_clip
from tests.studio.conftest import leave_running, running_studio, videos, wait_for

from vsrkit.errors import StoppedError
from vsrkit.upscale.job import upscale_video
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.video.read import open_source, orient

FRAMES = 100  # three parts: 48, 48 and 4 frames


def new_job(client, **options):
    """A job that waits, and the path of its output."""
    client.put("/api/queue", json={"paused": True})
    ((_, video),) = videos(client).items()
    job = {"video": video["id"], "options": {"model": "bicubic"} | options, "report": True}
    (added,) = client.post("/api/jobs", json={"jobs": [job]}).json()["jobs"]
    return added["id"], added["output"]["path"]


def upscale(source, target, *, stop=None, **options):
    """Run the job as its process does, up to a frame."""

    def on_progress(progress):
        if progress.stage == "upscale" and progress.done == stop:
            raise StoppedError("here")

    given = UpscaleOptions(model="bicubic", **options)
    try:
        upscale_video(source, target, options=given, on_progress=on_progress)
    except StoppedError:
        assert stop is not None


def finish(folder, job, source, target, **options):
    """Let a stopped job be done, and start the studio again."""
    leave_running(folder, job)
    upscale(source, target, **options)


def decoded(content):
    """Times in seconds and samples of a video."""
    with av.open(io.BytesIO(content)) as file:
        return [(f.pts * f.time_base, f.to_ndarray().tobytes()) for f in file.decode(video=0)]


def pixels(answer):
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    return np.asarray(Image.open(io.BytesIO(answer.content))).astype(int)


def exact(frame):
    return (frame.double().clamp(0, 1) * 255).round().permute(1, 2, 0).int().numpy()


def test_finished_parts_are_those_of_the_result(folder):
    clip = write_clip(folder / "a.mp4", frames=FRAMES)
    with running_studio(folder) as client:
        job, target = new_job(client)
        path = f"/api/jobs/{job}"
        assert client.get(f"{path}/parts").status_code == 409
        assert client.get(f"{path}/result").status_code == 409
        assert client.get(f"{path}/report").status_code == 404
        upscale(clip, target, stop=60)
        found = client.get(f"{path}/parts").json()
        (part,) = found.pop("parts")
        assert found == {
            "total": FRAMES, "width": 128, "height": 96, "source_width": 32, "source_height": 24,
            "fps": 25.0, "source": f"/api/videos/{next(iter(videos(client).values()))['id']}/play",
            "source_start_s": 0.0,
        }  # fmt: skip
        assert part == {
            "number": 0, "first": 0, "frames": 48, "start_s": 0.0, "end_s": 1.92,
            "clip": f"{path}/parts/0/clip",
        }  # fmt: skip
        times = client.get(f"{path}/parts/0").json()["times_s"]
        assert times == pytest.approx([number / 25 for number in range(48)])
        answer = client.get(part["clip"], headers={"range": "bytes=0-"})
        assert (answer.status_code, answer.headers["content-type"]) == (206, "video/mp4")
        early = decoded(answer.content)
        frame = client.get(f"{path}/frames/40/result.png")
        source = pixels(client.get(f"{path}/frames/70/source.png"))
        for missing in (
            "parts/1",
            "parts/1/clip",
            "parts/9",
            "frames/70/result.png",
            "frames/100/source.png",
        ):
            assert client.get(f"{path}/{missing}").status_code == 404
        for wrong in ("parts/-1", "parts/x", "parts/" + "9" * 5000, "frames/²/source.png"):
            assert client.get(f"{path}/{wrong}").status_code == 400
    finish(folder, job, clip, target)
    with running_studio(folder) as client:
        wait_for(client, job, "done")
        found = client.get(f"{path}/parts").json()
        assert [(part["first"], part["frames"]) for part in found["parts"]] == [(0, FRAMES)]
        whole = decoded(client.get(found["parts"][0]["clip"]).content)
        assert len(whole) == FRAMES
        assert early == whole[:48]
        assert client.get(f"{path}/frames/40/result.png").content == frame.content
        assert (pixels(client.get(f"{path}/frames/70/source.png")) == source).all()
        assert (source == exact(list(open_source(clip).frames())[70])).all()
        last = list(open_source(target).frames())[99]
        assert (pixels(client.get(f"{path}/frames/99/result.png")) == exact(last)).all()
        result = client.get(f"{path}/result")
        assert result.content == Path(target).read_bytes()
        assert result.headers["content-disposition"].startswith("attachment")


def test_a_span_of_a_turned_video_is_matched(folder):
    clip = write_clip(folder / "a.mkv", frames=80, rotation=90)
    with running_studio(folder) as client:
        job, target = new_job(client, start="0.4", scale=2)
        upscale(clip, target, stop=60, start=Fraction(2, 5), scale=2)
        found = client.get(f"/api/jobs/{job}/parts").json()
        assert (found["width"], found["height"]) == (48, 64)
        assert (found["source_width"], found["source_height"]) == (24, 32)
        assert found["source_start_s"] == pytest.approx(0.4)
        source = open_source(clip)
        displayed = orient(list(source.frames())[10 + 7], source.info.orientation)
        shown = pixels(client.get(f"/api/jobs/{job}/frames/7/source.png"))
        assert (shown == exact(displayed)).all()
        assert pixels(client.get(f"/api/jobs/{job}/frames/7/result.png")).shape == (64, 48, 3)


def test_what_browsers_cannot_play_is_shown_as_frames(folder):
    clip = write_clip(folder / "a.mkv", frames=60, pix_fmt="yuv420p10le", codec="libx265")
    with running_studio(folder) as client:
        job, target = new_job(client)
        upscale(clip, target, stop=50)
        found = client.get(f"/api/jobs/{job}/parts").json()
        assert (found["source"], found["parts"][0]["clip"]) == (None, None)
        assert client.get(f"/api/jobs/{job}/parts/0/clip").status_code == 415
        early = client.get(f"/api/jobs/{job}/frames/30/result.png")
        assert early.content[24] == 16  # bits of a sample
    finish(folder, job, clip, target)
    with running_studio(folder) as client:
        wait_for(client, job, "done")
        assert client.get(f"/api/jobs/{job}/parts").json()["parts"][0]["clip"] is None
        assert client.get(f"/api/jobs/{job}/parts/0/clip").status_code == 415
        late = client.get(f"/api/jobs/{job}/frames/30/result.png")
        assert late.content == early.content


@pytest.mark.parametrize("manifest", [None, '{"format": 1}'])
def test_a_job_without_a_manifest_is_scanned_again(folder, manifest):
    clip = write_clip(folder / "a.mp4", frames=10)
    with running_studio(folder) as client:
        job, target = new_job(client)
    finish(folder, job, clip, target)
    with running_studio(folder) as client:
        wait_for(client, job, "done")
        copy = client.studio.state.manifest(job)
        assert not copy.exists()
        if manifest:  # of another version
            copy.parent.mkdir(parents=True)
            copy.write_text(manifest)
        assert client.get(f"/api/jobs/{job}/parts").json()["total"] == 10
        shown = pixels(client.get(f"/api/jobs/{job}/frames/3/source.png"))
        assert (shown == exact(list(open_source(clip).frames())[3])).all()


def test_a_report_has_an_origin_of_its_own(folder):
    write_clip(folder / "a.mp4")
    with running_studio(folder) as client:
        job, _ = new_job(client)
        report = client.studio.state.report(job)
        report.parent.mkdir(parents=True)
        report.write_text('<script>alert(1)</script><script type="module">its own</script>')
        policy = client.get(f"/api/jobs/{job}/report").headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none'")
        assert "allow-same-origin" not in policy
        digest = b64encode(sha256(b"its own").digest()).decode()
        assert f"; script-src 'sha256-{digest}';" in policy


def test_results_that_were_replaced_are_not_read(folder, tmp_path):
    clip = write_clip(folder / "a.mp4")
    secret = write_clip(tmp_path / "secret.mkv")
    with running_studio(folder) as client:
        job, target = new_job(client)
    finish(folder, job, clip, target)
    with running_studio(folder) as client:
        wait_for(client, job, "done")
        (folder / "a.x4.mkv").unlink()
        (folder / "a.x4.mkv").symlink_to(secret)
        for what in ("result", "parts", "parts/0/clip", "frames/0/result.png"):
            assert client.get(f"/api/jobs/{job}/{what}").status_code == 404
