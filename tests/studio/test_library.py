"""The library: what it lists, what it says of broken files, and the pictures of videos."""

import io
import os
import shutil
import time

import numpy as np
import pytest
from PIL import Image
from tests.clips import noise_picture, write_clip, write_rich_clip
from tests.studio.conftest import running_studio, videos

from vsrkit.errors import VideoError
from vsrkit.studio import library, media
from vsrkit.studio.workers import WorkerError
from vsrkit.video.probe import probe
from vsrkit.video.read import read_video

NASTY = "<img src=x onerror=alert(1)>.mp4"


def pixels(answer):
    assert answer.status_code == 200
    return np.asarray(Image.open(io.BytesIO(answer.content)))


def test_videos_are_described(client, folder):
    (folder / "sub").mkdir()
    write_rich_clip(folder / "sub" / "rich.mkv")
    video = videos(client)["rich.mkv"]
    assert (video["place"], video["state"], video["error"]) == ("sub", "ready", None)
    info = video["info"]
    assert (info["width"], info["height"], info["fps"]) == (32, 24, 25.0)
    assert (info["codec"], info["playable"], info["interlaced"]) == ("h264", True, False)
    kinds = [stream["kind"] for stream in info["streams"]]
    assert kinds == ["video", "audio", "subtitle", "attachment"]
    assert client.get(f"/api/videos/{video['id']}").json()["info"] == info


def test_remarks_follow(client, folder):
    write_clip(folder / "a.mp4")
    video = videos(client)["a.mp4"]["id"]
    deadline = time.monotonic() + 90
    while (found := client.get(f"/api/videos/{video}").json())["remarks"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert any(line.startswith("no audio") for line in found["remarks"])


def test_names_are_data(client, folder):
    write_clip(folder / NASTY)
    broken = os.fsdecode(b"\xff\xfe.mp4")  # no UTF-8
    write_clip(folder / "a.mp4").rename(folder / broken)
    found = videos(client)
    assert found.keys() == {NASTY, "\ufffd\ufffd.mp4"}
    download = client.get(f"/api/videos/{found[NASTY]['id']}/file")
    assert download.headers["content-type"] == "application/octet-stream"
    assert download.headers["content-disposition"] == (
        "attachment; filename*=UTF-8''%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E.mp4"
    )
    other = found["\ufffd\ufffd.mp4"]["id"]
    assert client.get(f"/api/videos/{other}/frame").status_code == 200


def test_a_broken_file_has_the_line_of_the_terminal(client, folder, monkeypatch):
    (folder / "broken.mp4").write_bytes(b"this is no video" * 10)
    video = videos(client)["broken.mp4"]
    monkeypatch.chdir(folder)
    with pytest.raises(VideoError) as error:
        probe("broken.mp4")
    assert (video["state"], video["error"]) == ("broken", str(error.value))
    for request in ("frame", "shots", "play"):
        answer = client.get(f"/api/videos/{video['id']}/{request}")
        assert (answer.status_code, answer.json()["error"]) == (422, str(error.value))
    job = client.post("/api/jobs", json={"jobs": [{"video": video["id"]}]})
    assert (job.status_code, job.json()["error"]) == (422, str(error.value))


@pytest.mark.parametrize(
    "content",
    [
        "ffconcat version 1.0\nfile secret/a.mp4\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsecret/a.mp4\n#EXT-X-ENDLIST\n",
    ],
)
def test_lists_of_other_files_are_not_followed(client, folder, content, tmp_path):
    (folder / "secret").mkdir()
    write_clip(folder / "secret" / "a.mp4")
    (folder / "list.mp4").write_text(content)
    assert videos(client)["list.mp4"]["state"] == "broken"


def test_a_changed_file_is_read_again(client, folder):
    write_clip(folder / "a.mp4", frames=3)
    assert videos(client)["a.mp4"]["info"]["frames"] == 3
    write_clip(folder / "a.mp4", frames=5)
    assert videos(client)["a.mp4"]["info"]["frames"] == 5
    (folder / "a.mp4").unlink()
    assert videos(client) == {}


def test_what_is_known_survives_a_restart(folder, monkeypatch):
    write_clip(folder / "a.mp4")
    with running_studio(folder) as client:
        before = videos(client)["a.mp4"]
        while client.get(f"/api/videos/{before['id']}").json()["remarks"] is None:
            pass

    def read(*_, **__):
        raise AssertionError("the file is read again")

    monkeypatch.setattr(library.media, "inspect", read)
    monkeypatch.setattr(library.media, "remarks", read)
    with running_studio(folder) as client:
        (listed,) = client.get("/api/library").json()["folders"][0]["videos"]
        assert listed["info"] == before["info"]
        assert client.get(listed["thumbnail"]).status_code == 200


def test_what_took_too_long_is_tried_again_after_a_restart(folder, monkeypatch):
    def inspect(*_, **__):
        raise WorkerError("reading this video takes too long")

    with monkeypatch.context() as patch, running_studio(folder) as client:
        patch.setattr(library.media, "inspect", inspect)
        write_clip(folder / "a.mp4")
        assert videos(client)["a.mp4"]["error"] == "reading this video takes too long"
    with running_studio(folder) as client:
        assert videos(client)["a.mp4"]["state"] == "ready"


@pytest.mark.parametrize("replace", ["link", "folder", "nothing"])
def test_files_that_were_replaced_are_not_read(client, folder, tmp_path, replace):
    secret = write_clip(tmp_path / "secret.mp4")
    write_clip(folder / "a.mp4")
    video = videos(client)["a.mp4"]["id"]
    (folder / "a.mp4").unlink()
    if replace == "link":
        (folder / "a.mp4").symlink_to(secret)
    elif replace == "folder":
        (folder / "a.mp4").mkdir()
    for request in ("", "/frame", "/file", "/play", "/shots"):
        assert client.get(f"/api/videos/{video}{request}").status_code == 404
    assert client.post("/api/jobs", json={"jobs": [{"video": video}]}).status_code == 404


@pytest.mark.parametrize("video", ["..%2f..%2fetc%2fpasswd", "%2Fetc%2Fpasswd", "0" * 16, "a.mp4"])
def test_identifiers_are_no_paths(client, folder, video):
    write_clip(folder / "a.mp4")
    videos(client)
    for request in ("", "/thumbnail", "/frame", "/file", "/play", "/shots"):
        assert client.get(f"/api/videos/{video}{request}").status_code == 404


def test_frames_are_lossless(client, folder):
    write_clip(folder / "a.mp4", frames=30, smooth=True)
    video = videos(client)["a.mp4"]["id"]
    frames = list(read_video(folder / "a.mp4"))
    for seconds, number in ((0, 0), (-5, 0), (0.039, 0), (0.04, 1), (0.5, 12), (99, 29)):
        answer = client.get(f"/api/videos/{video}/frame?t={seconds}")
        exact = (frames[number] * 255).round().byte().permute(1, 2, 0).numpy()
        assert (pixels(answer) == exact).all()
        assert float(answer.headers["x-frame-time"]) == pytest.approx(number / 25)


def test_thumbnails_and_strips_are_small_and_turned(client, folder):
    write_clip(folder / "a.mkv", width=64, height=32, rotation=90)
    video = videos(client)["a.mkv"]
    assert (video["info"]["width"], video["info"]["height"]) == (32, 64)
    assert pixels(client.get(video["thumbnail"])).shape == (64, 32, 3)
    assert pixels(client.get(f"/api/videos/{video['id']}/frame?width=16")).shape == (32, 16, 3)
    assert pixels(client.get(f"/api/videos/{video['id']}/frame")).shape == (64, 32, 3)


def test_a_full_disk_does_not_make_a_video_broken(folder, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    write_clip(folder / "a.mp4")
    with monkeypatch.context() as patch:
        patch.setattr(media, "write_atomically", fail)
        with running_studio(folder) as client:
            assert videos(client)["a.mp4"]["state"] == "broken"
    with running_studio(folder) as client:
        assert videos(client)["a.mp4"]["state"] == "ready"


def test_a_disk_that_is_gone_has_a_line(client, folder):
    shutil.rmtree(folder)
    answer = client.post("/api/uploads", json={"name": "a.mp4", "size": 1})
    assert (answer.status_code, answer.json()["error"].count("\n")) in [(404, 0), (507, 0)]
    answer = client.put("/api/queue", json={"paused": True})
    assert answer.status_code == 507
    assert "disk full or gone" in answer.json()["error"]
    assert client.get("/api/library").json()["folders"][0]["videos"] == []


@pytest.mark.parametrize(
    "query", ["t=x", "t=nan", "t=1e99", "width=0", "width=9999", "width=x", "width=²"]
)
def test_wrong_values_are_refused(client, folder, query):
    write_clip(folder / "a.mp4")
    video = videos(client)["a.mp4"]["id"]
    assert client.get(f"/api/videos/{video}/frame?{query}").status_code == 400


def test_the_strip_has_the_shots(client, folder):
    dark = [noise_picture(0, 64, 48, smooth=True)] * 10
    bright = [noise_picture(7, 64, 48)] * 10
    write_clip(folder / "a.mp4", width=64, height=48, frames=20, pictures=iter(dark + bright))
    video = videos(client)["a.mp4"]["id"]
    strip = client.get(f"/api/videos/{video}/shots").json()
    assert strip["kind"] == "shots"
    spans = [(shot["start_s"], shot["end_s"]) for shot in strip["shots"]]
    assert spans == [(0.0, 0.4), (0.4, 0.8)]
    assert pixels(client.get(strip["shots"][1]["picture"])).shape == (48, 64, 3)


def test_a_long_video_gets_moments(client, folder, monkeypatch):
    monkeypatch.setattr(library.media, "SCANNED", 1)
    write_clip(folder / "a.mp4", frames=24)
    video = videos(client)["a.mp4"]["id"]
    strip = client.get(f"/api/videos/{video}/shots").json()
    assert (strip["kind"], len(strip["shots"])) == ("moments", library.media.MOMENTS)


def test_several_folders_are_listed(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_clip(other / "b.mp4")
    with running_studio(folder, more=[other]) as client:
        first, second = client.get("/api/library").json()["folders"]
        assert (first["uploads"], first["videos"]) == (True, [])
        assert (second["uploads"], second["videos"][0]["name"]) == (False, "b.mp4")
        assert client.get("/api/session").json()["folders"][1]["path"] == str(other)
