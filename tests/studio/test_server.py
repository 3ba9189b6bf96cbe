"""A studio in a process of its own: connections, kills, restarts."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.clips import write_clip

from vsrkit.errors import UsageError, VsrkitError
from vsrkit.studio import server
from vsrkit.studio.server import addresses, serve
from vsrkit.studio.state_folder import StateFolder
from vsrkit.upscale.job import upscale_video
from vsrkit.upscale.options import UpscaleOptions

HASTE_S = 2.0  # seconds for the head of a request, in place of 20
START = f"""
import sys
from vsrkit.cli import main
from vsrkit.studio import server
server.REQUEST_S = {HASTE_S}
main()
"""


class Studio:
    """A running server and the cookie of a session."""

    def __init__(self, process, address):
        self.process = process
        self.port = int(address.split(":")[2].split("/")[0])
        self.cookie = ""
        answer, _ = self.ask("GET", address[address.index("/login") :])
        self.cookie = answer.headers["set-cookie"].split(";")[0]

    def ask(self, method, path, body=None, *, cookie=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"cookie": self.cookie if cookie is None else cookie}
        connection.request(method, path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    def get(self, path):
        return json.loads(self.ask("GET", path)[1])

    def connect(self, content=b""):
        """An open connection on which some bytes are sent."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        made.sendall(content)
        return made

    def wait(self, path, ready):
        deadline = time.monotonic() + 120
        while not ready(found := self.get(path)):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found


@contextmanager
def started(folder, *arguments):
    """A studio of a folder in a process of its own."""
    line = [
        sys.executable,
        "-c",
        START,
        "studio",
        str(folder),
        "--no-browser",
        "--port=0",
        *arguments,
    ]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        first = process.stdout.readline()
        assert first.startswith("vsrkit studio: http://127.0.0.1:"), first
        yield Studio(process, first.split()[-1])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    os.environ["VSRKIT_CACHE"] = str(tmp_path_factory.getbasetemp() / "cache")
    with started(tmp_path_factory.mktemp("videos")) as studio:
        yield studio


def test_the_address_is_printed_again(studio):
    (address,) = [a for a in addresses() if f":{studio.port}/" in a]
    answer, _ = studio.ask("GET", address[address.index("/login") :], cookie="")
    assert answer.status == 200
    assert answer.headers["set-cookie"]


def test_a_folder_has_one_studio(studio):
    (folder,) = studio.get("/api/session")["folders"]
    with pytest.raises(VsrkitError, match="already running"):
        serve(
            [Path(folder["path"])],
            options=lambda _: None,
            host="127.0.0.1",
            port=0,
            allowed_hosts=[],
            max_upload=1,
            cluster=None,
            on_ready=lambda _: None,
        )


def test_events_arrive(studio):
    head = f"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\ncookie: {studio.cookie}\r\n\r\n"
    with studio.connect(head.encode()) as connection:
        content = b""
        while b"event: hello" not in content:
            content += connection.recv(4096)
        studio.ask("PUT", "/api/queue", {"paused": False})
        while b'event: queue\ndata: {"paused": false, "order": []}' not in content:
            content += connection.recv(4096)
    assert b"content-type: text/event-stream" in content


def test_two_hundred_connections_and_slow_clients(studio):
    """Half of them send nothing, half a head that does not end; all are closed after a while."""
    slow = [studio.connect() for _ in range(100)]
    slow += [studio.connect(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ") for _ in range(100)]
    for _ in range(5):
        assert studio.ask("GET", "/api/session")[0].status == 200
        assert studio.ask("GET", "/api/session", cookie="")[0].status == 401
    for connection in slow:
        connection.settimeout(HASTE_S + 60)
        assert connection.recv(100) == b""
        connection.close()
    assert studio.ask("GET", "/api/session")[0].status == 200


def test_two_hundred_requests_at_once(studio):
    head = b"GET /api/session HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    waiting = [studio.connect(head) for _ in range(200)]
    for connection in waiting:
        assert connection.recv(100).startswith(b"HTTP/1.1 401")
        connection.close()


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01",  # TLS
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET http://127.0.0.1/ HTTP/9.9\r\nhost: 127.0.0.1\r\n\r\n",
        b"POST /api/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -5\r\n\r\n",
        b"A" * 200_000,
    ],
)
def test_what_is_no_request_is_refused(studio, content):
    with studio.connect() as connection:
        try:
            connection.sendall(content)
            answer = connection.recv(1000)
        except ConnectionError:
            answer = b""
    assert answer.split(b" ")[1:2] in ([], [b"400"], [b"401"], [b"403"])
    assert studio.ask("GET", "/api/session")[0].status == 200


@pytest.mark.parametrize(("declared", "sent"), [(10, 5), (5, 10)])
def test_a_wrong_content_length_writes_no_video(studio, declared, sent):
    folder = Path(studio.get("/api/session")["folders"][0]["path"])
    _, answer = studio.ask("POST", "/api/uploads", {"name": "a.mp4", "size": 10})
    upload = json.loads(answer)["id"]
    head = (
        f"PUT /api/uploads/{upload}?offset=0 HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"cookie: {studio.cookie}\r\ncontent-length: {declared}\r\n\r\n"
    )
    with studio.connect(head.encode() + b"x" * sent) as connection:
        if sent > declared:  # the rest is taken for another request
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    studio.wait(f"/api/uploads/{upload}", lambda found: found["offset"] == 5)
    assert studio.get("/api/library")["folders"][0]["videos"] == []
    assert studio.ask("DELETE", f"/api/uploads/{upload}")[0].status == 204
    assert list(StateFolder(folder / ".vsrkit-studio").uploads.iterdir()) == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_of_the_guide_run(studio, tmp_path):
    guide = Path(__file__).parents[2] / "docs" / "studio.md"
    (script,) = re.findall(r"```sh\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    (address,) = [a for a in addresses() if f":{studio.port}/" in a]
    command = tmp_path / "vsrkit"  # in place of the one that takes seconds to start
    command.write_text(f"#!/bin/sh\necho {address}\n")
    command.chmod(0o755)
    write_clip(tmp_path / "in.mp4")
    studio.ask("PUT", "/api/queue", {"paused": True})
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.returncode, "queued" in run.stdout, "event: hello" in run.stdout) == (0, True, True)
    (job,) = studio.get("/api/jobs")["jobs"]
    assert (job["name"], job["options"]) == ("in.mp4", {"scale": 2})
    folder = Path(studio.get("/api/session")["folders"][0]["path"])
    assert (folder / "in.mp4").read_bytes() == (tmp_path / "in.mp4").read_bytes()


def test_a_job_survives_the_kill_of_the_server(tmp_path):
    clip = write_clip(tmp_path / "a.mp4", frames=250, width=64, height=48)
    with started(tmp_path) as studio:
        (video,) = studio.get("/api/library")["folders"][0]["videos"]
        studio.wait(f"/api/videos/{video['id']}", lambda found: found["state"] == "ready")
        wanted = {"video": video["id"], "options": {"model": "bicubic"}}
        _, answer = studio.ask("POST", "/api/jobs", {"jobs": [wanted]})
        (job,) = json.loads(answer)["jobs"]
        deadline = time.monotonic() + 120
        while not (tmp_path / ".a.x4.mkv.vsrkit" / "part-000000.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        studio.process.kill()
        studio.process.wait()
        assert not (tmp_path / "a.x4.mkv").exists()
    with started(tmp_path) as studio:
        done = studio.wait(f"/api/jobs/{job['id']}", lambda found: found["state"] == "done")
        assert done["command"] == job["command"]
        log = studio.ask("GET", f"/api/jobs/{job['id']}/log")[1].decode()
        assert "of them in an earlier run" in log
    upscale_video(clip, tmp_path / "alone.mkv", options=UpscaleOptions(model="bicubic"))
    assert (tmp_path / "a.x4.mkv").read_bytes() == (tmp_path / "alone.mkv").read_bytes()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"host": "0.0.0.0"}, "--allow-host"),
        ({"allowed_hosts": ["http://name"]}, "without http://"),
        ({"host": "192.0.2.1", "allowed_hosts": ["name"]}, "cannot listen"),
    ],
)
def test_other_addresses_need_a_name(tmp_path, values, message):
    given = {"host": "127.0.0.1", "port": 0, "allowed_hosts": [], "max_upload": 1, "cluster": None}
    with pytest.raises(UsageError if "listen" not in message else VsrkitError, match=message):
        serve([tmp_path], options=lambda _: None, on_ready=lambda _: None, **given | values)


def test_the_first_free_port_is_taken(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        monkeypatch.setattr(server, "FIRST_PORT", number)
        with server._listen("127.0.0.1", None) as found:
            assert number < found.getsockname()[1] < number + server.PORTS
        with pytest.raises(VsrkitError, match="choose another --port"):
            server._listen("127.0.0.1", number)
