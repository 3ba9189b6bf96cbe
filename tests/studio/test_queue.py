"""The queue: order, states, and what is there again after a restart. The command is a stand-in."""

import json
import sqlite3
import subprocess
import sys
import time

import psutil
import pytest
from tests.clips import write_clip
from tests.studio.conftest import leave_running, running_studio, videos, wait_for

from vsrkit.studio import queue
from vsrkit.studio.job import Job
from vsrkit.studio.queue import Queue

# Writes five parts of ten frames, as many as a file allows; stops as the command does.
COMMAND = """
import json, os, pathlib, signal, sys, time
output, steps = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
folder = output.with_name(f".{output.name}.vsrkit")
folder.mkdir(exist_ok=True)
interrupts = []
signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
if "broken" in output.name:
    print("vsrkit: a note\\nvsrkit: this cannot work", file=sys.stderr)
    sys.exit(1)
if "crash" in output.name:
    os.kill(os.getpid(), signal.SIGKILL)
def stop():
    print("vsrkit: stopped", file=sys.stderr)
    sys.exit(130)
for part in range(5):
    path = folder / f"part-{part}"
    if path.exists():
        continue
    for frame in range(10):
        line = {"stage": "upscale", "done": 10 * part + frame, "total": 50, "shot": 1, "shots": 1}
        print(json.dumps(line), flush=True)
        while int(steps.read_text() or 0) <= 10 * part + frame and len(interrupts) < 2:
            time.sleep(0.005)
        if len(interrupts) > 1:
            stop()
    path.write_text(str(os.getpid()))
    if interrupts:
        stop()
output.write_text(" ".join(path.read_text() for path in sorted(folder.iterdir())))
for path in folder.iterdir():
    path.unlink()
folder.rmdir()
"""


@pytest.fixture(autouse=True)
def steps(tmp_path, monkeypatch):
    """Lets jobs go on up to a frame."""
    script, steps = tmp_path / "command.py", tmp_path / "steps"
    script.write_text(COMMAND)

    def allow(frames):
        (tmp_path / "steps.new").write_text(str(frames))
        (tmp_path / "steps.new").replace(steps)

    allow(0)
    line = property(lambda job: [sys.executable, "-S", str(script), str(job.output), str(steps)])
    monkeypatch.setattr(Job, "process", line)
    return allow


@pytest.fixture
def folder(folder):
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        write_clip(folder / name, frames=2)
    return folder


def add(client, name="a.mp4", **more):
    job = {"video": videos(client)[name]["id"], **more}
    answer = client.post("/api/jobs", json={"jobs": [job]})
    assert answer.status_code == 201, answer.text
    return answer.json()["jobs"][0]["id"]


def do(client, job, what, **body):
    answer = client.post(f"/api/jobs/{job}/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def order(client):
    return client.get("/api/jobs").json()["queue"]["order"]


def wait_for_frame(client, job, frame):
    deadline = time.monotonic() + 90
    while (client.get(f"/api/jobs/{job}").json()["progress"] or {}).get("done", -1) < frame:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def parts(folder):
    return sorted(path.name for path in folder.glob(".*.vsrkit/part-*"))


def test_jobs_run_one_after_the_other(client, folder, steps):
    first = add(client)
    second = add(client, "b.mp4", options={"scale": 2}, report=True)
    wait_for_frame(client, first, 0)
    running, waiting = client.get("/api/jobs").json()["jobs"]
    assert (running["state"], waiting["state"]) == ("running", "queued")
    assert running["output"]["name"] == "a.x4.mkv"
    assert waiting["output"]["name"] == "b.x2.mkv"
    assert waiting["command"].endswith(
        "b.x2.mkv --scale=2 --report="
        + str(folder / ".vsrkit-studio" / "jobs" / second / "report.html")
    )
    steps(50)
    for job in (first, second):
        done = wait_for(client, job, "done")
        assert done["finished"] >= done["started"] >= done["created"]
        assert done["output"]["size"] > 0
    assert order(client) == []


def test_a_pause_keeps_the_finished_parts(client, folder, steps):
    job = add(client)
    steps(12)
    wait_for_frame(client, job, 12)
    assert do(client, job, "pause")["state"] == "pausing"
    assert parts(folder) == ["part-0"]
    steps(20)
    wait_for(client, job, "paused")
    assert parts(folder) == ["part-0", "part-1"]
    other = add(client, "b.mp4")  # a paused job does not hold up the others
    steps(50)
    wait_for(client, other, "done")
    assert client.get(f"/api/jobs/{job}").json()["state"] == "paused"
    do(client, job, "resume")
    wait_for(client, job, "done")
    pids = (folder / "a.x4.mkv").read_text().split()
    assert len(set(pids[:2])) == 1
    assert len(set(pids[2:])) == 1
    assert pids[0] != pids[2]


def test_a_pause_now_loses_the_current_part_only(client, folder, steps):
    job = add(client)
    steps(15)
    wait_for_frame(client, job, 15)
    do(client, job, "pause")
    do(client, job, "pause", now=True)
    wait_for(client, job, "paused")
    assert parts(folder) == ["part-0"]


def test_pausing_can_be_taken_back(client, folder, steps):
    job = add(client)
    steps(5)
    wait_for_frame(client, job, 5)
    do(client, job, "pause")
    do(client, job, "resume")
    steps(50)
    wait_for(client, job, "done")


def test_a_cancelled_job_leaves_nothing(client, folder, steps):
    job = add(client)
    steps(15)
    wait_for_frame(client, job, 15)
    do(client, job, "cancel")
    wait_for(client, job, "cancelled")
    assert sorted(path.name for path in folder.iterdir()) == [
        ".vsrkit-studio", "a.mp4", "b.mp4", "c.mp4"
    ]  # fmt: skip
    steps(50)
    do(client, job, "retry")
    wait_for(client, job, "done")
    assert client.post("/api/queue/clear").json() == {"removed": [job]}
    assert (folder / "a.x4.mkv").exists()
    assert not (folder / ".vsrkit-studio" / "jobs" / job).exists()


def test_the_order_can_be_changed_while_it_runs(client, folder, steps):
    running = add(client)
    wait_for_frame(client, running, 0)
    first, second = add(client, "b.mp4"), add(client, "c.mp4")
    answer = client.put("/api/queue", json={"order": [second, first]})
    assert answer.json() == {"paused": False, "order": [second, first, running]}
    steps(50)
    done = [wait_for(client, job, "done")["finished"] for job in (running, second, first)]
    assert done == sorted(done)
    assert client.put("/api/queue", json={"order": [first]}).status_code == 409
    assert client.put("/api/queue", json={"order": ["x"]}).status_code == 409
    assert client.put("/api/queue", json={"order": [1]}).status_code == 400
    assert client.put("/api/queue", json={"paused": 1}).status_code == 400


def test_the_queue_can_be_paused(client, folder, steps):
    job = add(client)
    steps(5)
    wait_for_frame(client, job, 5)
    client.put("/api/queue", json={"paused": True})
    steps(50)
    wait_for(client, job, "queued")
    assert parts(folder) == ["part-0"]
    client.put("/api/queue", json={"paused": False})
    wait_for(client, job, "done")


def test_a_failed_job_has_the_line_of_the_command(client, folder, steps):
    steps(50)
    broken, crash = add(client, output="broken.mkv"), add(client, "b.mp4", output="crash.mkv")
    assert wait_for(client, broken, "failed")["error"] == "this cannot work"
    log = client.get(f"/api/jobs/{broken}/log")
    assert log.text == "vsrkit: a note\nvsrkit: this cannot work\n"
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    assert "SIGKILL" in wait_for(client, crash, "failed")["error"]
    changed = client.patch(
        f"/api/jobs/{broken}", json={"output": "good.mkv", "options": {"crf": 3}}
    )
    assert changed.json()["options"] == {"crf": 3}
    do(client, broken, "retry")
    wait_for(client, broken, "done")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"jobs": []}, 400),
        ({"jobs": [1]}, 400),
        ({"jobs": [{}]}, 400),
        ({"jobs": [{"video": "none"}]}, 404),
        ({"jobs": [{"video": "A", "options": {"scale": 99}}]}, None),
        ({"jobs": [{"video": "A", "options": {"none": 1}}]}, 400),
        ({"jobs": [{"video": "A", "options": []}]}, 400),
        ({"jobs": [{"video": "A", "options": False}]}, 400),
        ({"jobs": [{"video": "A", "output": "../x.mkv"}]}, 400),
        ({"jobs": [{"video": "A", "output": "/tmp/x.mkv"}]}, 400),
        ({"jobs": [{"video": "A", "output": ".x.mkv"}]}, 400),
        ({"jobs": [{"video": "A", "output": "x.sh"}]}, 400),
        ({"jobs": [{"video": "A", "output": "-"}]}, 400),
        ({"jobs": [{"video": "A", "output": "%04d.png"}]}, 400),
        ({"jobs": [{"video": "A", "output": "b.mp4"}]}, 409),
        ({"jobs": [{"video": "A", "report": "page.html"}]}, 400),
        ({"jobs": [{"video": "A"}, {"video": "A", "none": 1}]}, 400),
    ],
)
def test_wrong_jobs_are_refused_as_a_whole(client, folder, body, status):
    client.put("/api/queue", json={"paused": True})
    video = videos(client)["a.mp4"]["id"]
    text = json.dumps(body).replace('"A"', f'"{video}"')
    answer = client.post("/api/jobs", content=text)
    assert answer.status_code == (status or 201)
    assert (client.get("/api/jobs").json()["jobs"] == []) == (status is not None)


def test_outputs_never_meet(client, folder, steps):
    client.put("/api/queue", json={"paused": True})
    for name in ("a.x4.mkv", "a.x4-2.mkv", "a.x4-3.mkv"):
        job = add(client)
        assert client.get(f"/api/jobs/{job}").json()["output"]["name"] == name
    (folder / ".a.x4-4.mkv.vsrkit").mkdir()  # a job of a terminal
    job = add(client)
    assert client.get(f"/api/jobs/{job}").json()["output"]["name"] == "a.x4-5.mkv"


@pytest.mark.parametrize(
    ("state", "refused"),
    [
        ("queued", ["resume", "retry", "remove"]),
        ("paused", ["pause", "retry", "remove"]),
        ("cancelled", ["pause", "resume", "cancel"]),
        ("done", ["pause", "resume", "cancel", "retry", "change"]),
    ],
)
def test_what_a_state_does_not_allow_is_refused(client, folder, steps, state, refused):
    steps(50)
    if state != "done":
        client.put("/api/queue", json={"paused": True})
    job = add(client)
    if state == "done":
        wait_for(client, job, "done")
    elif state != "queued":
        do(client, job, state.removesuffix("d").removesuffix("le").replace("cancelle", "cancel"))
    before = client.get(f"/api/jobs/{job}").json()
    for what in refused:
        path = f"/api/jobs/{job}"
        if what == "remove":
            answer = client.delete(path)
        elif what == "change":
            answer = client.patch(path, json={"options": {}})
        else:
            answer = client.post(f"{path}/{what}")
        assert answer.status_code == 409, what
        assert state in answer.json()["error"]
    assert client.get(f"/api/jobs/{job}").json() == before


def test_all_is_there_after_a_restart(folder, steps):
    with running_studio(folder) as client:
        client.put("/api/queue", json={"paused": True})
        jobs = [add(client, name) for name in ("a.mp4", "b.mp4", "c.mp4")]
        client.put("/api/queue", json={"order": jobs[::-1]})
        do(client, jobs[0], "pause")
        do(client, jobs[1], "cancel")
        before = client.get("/api/jobs").json()
    with running_studio(folder) as client:
        videos(client)
        assert client.get("/api/jobs").json() == before
        assert add(client) == str(int(jobs[-1]) + 1)


def test_a_stopped_server_resumes_the_running_job(folder, steps):
    with running_studio(folder) as client:
        job = add(client)
        steps(15)
        wait_for_frame(client, job, 15)
    assert parts(folder) == ["part-0"]
    steps(50)
    with running_studio(folder) as client:
        wait_for(client, job, "done")


def test_processes_of_a_killed_server_are_ended(folder, steps):
    with running_studio(folder) as client:
        client.put("/api/queue", json={"paused": True})
        job = add(client)
    left = leave_running(folder, job)
    with (
        subprocess.Popen(left.process, stdout=subprocess.DEVNULL) as process,
        running_studio(folder) as client,
    ):
        wait_for(client, job, "queued")
        assert not psutil.pid_exists(process.pid)
        steps(50)
        client.put("/api/queue", json={"paused": False})
        wait_for(client, job, "done")


def test_a_job_that_was_done_when_the_server_was_killed_is_done(folder, steps):
    with running_studio(folder) as client:
        client.put("/api/queue", json={"paused": True})
        job = add(client)
    leave_running(folder, job)
    (folder / "a.x4.mkv").write_text("result")
    with running_studio(folder) as client:
        wait_for(client, job, "done")
    assert (folder / "a.x4.mkv").read_text() == "result"


def test_a_cluster_is_passed_to_jobs(folder):
    with running_studio(folder, cluster="tcp://host:8786") as client:
        client.put("/api/queue", json={"paused": True})
        job = add(client)
        command = client.get(f"/api/jobs/{job}").json()["command"]
        assert "--cluster=tcp://host:8786" in command
    with running_studio(folder) as client:
        assert client.get(f"/api/jobs/{job}").json()["command"] == command


def test_jobs_outside_of_the_folders_do_not_run(folder, tmp_path, steps):
    steps(50)
    with running_studio(folder) as client:
        client.put("/api/queue", json={"paused": True})
        job = add(client)
    (folder / "inner").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "a.mp4").rename(outside / "a.mp4")
    (folder / "a.mp4").symlink_to(outside / "a.mp4")
    with running_studio(folder) as client:
        client.put("/api/queue", json={"paused": False})
        assert "not in the folders" in wait_for(client, job, "failed")["error"]


def test_the_queue_goes_on_after_its_disk_was_full(client, folder, steps, monkeypatch):
    monkeypatch.setattr(queue, "AGAIN_S", 0.01)
    save, lost = Queue._set, []

    def fail_first(self, job):
        if job.state == "running" and not lost:
            lost.append(job)
            raise sqlite3.OperationalError("database or disk is full")
        return save(self, job)

    monkeypatch.setattr(Queue, "_set", fail_first)
    steps(50)
    job = add(client)
    wait_for(client, job, "done")
    assert lost


def test_a_name_that_is_too_long_has_a_line(client, folder):
    write_clip(folder / ("x" * 251 + ".mp4"), frames=2)
    client.put("/api/queue", json={"paused": True})
    video = videos(client)["x" * 251 + ".mp4"]["id"]
    answer = client.post("/api/jobs", json={"jobs": [{"video": video}]})
    assert answer.status_code == 400
    assert "choose a name" in answer.json()["error"]
    answer = client.post("/api/jobs", json={"jobs": [{"video": video, "output": "short.mkv"}]})
    assert answer.status_code == 201
