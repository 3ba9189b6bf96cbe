"""A studio in a process of its own, and pages of it in chromium."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from urllib.request import Request, urlopen

import psutil
import pytest
from tests.clips import write_clip

REQUIRED = "VSRKIT_REQUIRE_BROWSER"  # set by .ci/run: without a browser these tests fail
ARGUMENTS = [
    "--no-sandbox",  # the tests may run as root
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_S = 400  # only reached if something is wrong, however busy the machine is
HOSTILE = "<img src=x onerror=alert(1)>&quot;.mp4"


def require(found, what):
    if not found and os.environ.get(REQUIRED):
        pytest.fail(f"{what} is missing, and {REQUIRED} is set")
    if not found:
        pytest.skip(f"{what} is not installed")
    return found


@pytest.fixture(scope="session")
def chromium():
    path = require(shutil.which("chromium") or shutil.which("chromium-browser"), "chromium")
    require(find_spec("playwright"), "the Python package playwright")
    return path


# Not of the session: while Playwright runs, no other test of this process can use asyncio.run. Not
# of the package either: such fixtures end with the session.
@pytest.fixture(scope="module")
def browser(chromium):
    with import_module("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


class Studio:
    """A server on a folder."""

    def __init__(self, folder):
        self.folder, self.port = folder, 0

    def start(self):
        command = [sys.executable, "-m", "vsrkit", "studio", self.folder, "--no-browser"]
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"XDG_CACHE_HOME": str(self.folder.parent)},
        )
        line = self.process.stdout.readline()  # empty if the server ends with an error
        self.login = re.search(r"http://\S+", line)[0]
        self.port = int(re.search(r":(\d+)/", self.login)[1])
        self.address = f"http://127.0.0.1:{self.port}"

    def stop(self, *, kill=False):
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()


@contextmanager
def running(folder):
    """A server on a folder, which may be killed and started again."""
    studio = Studio(folder)
    studio.start()
    try:
        yield studio
    finally:
        studio.stop()


@pytest.fixture(scope="session")
def studio(chromium, tmp_path_factory):
    folder = tmp_path_factory.mktemp("studio") / "videos"
    folder.mkdir()
    write_clip(folder / "clip.mp4", frames=50, width=96, height=64)
    for name in ("one.mp4", "two.mp4", "three.mp4"):
        write_clip(folder / name, frames=60, width=160, height=120)
    shutil.copy(folder / "clip.mp4", folder / HOSTILE)
    (folder / "broken.mp4").write_bytes(b"this is no video" * 100)
    with running(folder) as studio:
        yield studio


def told(line):
    """An error of the console, with the address that it is about."""
    return f"{line.text} {line.location['url']}"


@contextmanager
def context_of(browser, studio, state=None, **options):
    """A window, signed in by `state`; fails if its pages have errors, such as of the policy."""
    context = browser.new_context(base_url=studio.address, storage_state=state, **options)
    context.set_default_timeout(1000 * PATIENCE_S)
    context.expected = []  # parts of messages that a test provokes
    messages = []

    def watch(page):
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("console", lambda line: line.type == "error" and messages.append(told(line)))

    context.on("page", watch)
    yield context
    context.close()
    found = [text for text in messages if not any(part in text for part in context.expected)]
    assert found == []


@pytest.fixture(scope="session")
def session(studio):
    """The cookie of a session; the token of the server's address can be used once."""
    with urlopen(studio.login) as answer:
        name, _, value = answer.headers["Set-Cookie"].partition(";")[0].partition("=")
    cookie = {"name": name, "value": value, "domain": "127.0.0.1", "path": "/"}
    return {"cookies": [cookie | {"httpOnly": True, "sameSite": "Strict"}], "origins": []}


@pytest.fixture(scope="session")
def results(studio, session):
    """Two finished jobs: one that browsers play and one that they do not."""

    def ask(path, value=None):
        body = None if value is None else json.dumps(value).encode()
        cookie = "{name}={value}".format(**session["cookies"][0])
        with urlopen(Request(studio.address + path, body, {"Cookie": cookie})) as answer:
            return json.load(answer)

    def wait(path, state):
        end = time.monotonic() + PATIENCE_S
        while ask(path)["state"] != state:
            assert time.monotonic() < end
            time.sleep(0.05)

    videos = ask("/api/library")["folders"][0]["videos"]
    (clip,) = (video["id"] for video in videos if video["name"] == "clip.mp4")
    wait(f"/api/videos/{clip}", "ready")
    jobs = [
        {"video": clip, "options": {"model": "bicubic", **more}, "output": name, "report": True}
        for name, more in (("played.mp4", {}), ("lossless.mkv", {"codec": "ffv1"}))
    ]
    numbers = [job["id"] for job in ask("/api/jobs", {"jobs": jobs})["jobs"]]
    for number in numbers:
        wait(f"/api/jobs/{number}", "done")
    return numbers


@pytest.fixture
def context(browser, studio, session):
    with context_of(browser, studio, session) as context:
        yield context


@pytest.fixture
def page(context):
    page = context.new_page()
    page.goto("/")
    return page


def until(page, condition, argument=None):
    """Wait until an expression or function is true; Playwright's own way needs eval in the page."""
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition, argument):
        assert time.monotonic() < end, f"never true: {condition}"
        page.wait_for_timeout(30)


def video_id(page, name):
    """The id of a video when it has been read."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        (folder,) = page.request.get("/api/library").json()["folders"]
        for video in folder["videos"]:
            if video["name"] == name and video["state"] == "ready":
                return video["id"]
        page.wait_for_timeout(50)
    raise AssertionError(f"{name} was not read in time")


@contextmanager
def paused_queue(page):
    """Let no job begin."""
    assert page.request.put("/api/queue", data={"paused": True}).ok
    yield
    assert page.request.put("/api/queue", data={"paused": False}).ok


@contextmanager
def held(studio, output):
    """Stop the process of a running job, so that it is in the same state until it was acted on."""
    end = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < end, f"no process writes {output}"
        with suppress(psutil.Error):
            each = psutil.Process(studio.process.pid).children()
            found = [
                process for process in each if str(studio.folder / output) in process.cmdline()
            ]
            if found:
                break
        time.sleep(0.005)
    found[0].suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            found[0].resume()
