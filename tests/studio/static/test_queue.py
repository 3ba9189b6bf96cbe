"""The queue in a browser: order, pause, resume, cancel; a closed tab; a server that is killed."""

import subprocess
import sys
import time

from tests.clips import write_clip
from tests.studio.static.conftest import (
    PATIENCE_S,
    context_of,
    held,
    running,
    until,
    video_id,
)


def state(card):
    return card.locator(".state").inner_text()


def wait_for_state(card, *states):
    until(
        card.page,
        "([card, states]) => states.includes(card.querySelector('.state').textContent)",
        [card.element_handle(), list(states)],
    )
    return state(card)


def test_runs_three_jobs(page, context, studio):
    names = ("one.mp4", "two.mp4", "three.mp4")
    for name in names:
        video_id(page, name)
        page.get_by_label(f"Select {name}").check()
    page.get_by_role("button", name="Upscale 3…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Model", exact=True).select_option("vsrt-xs")
    dialog.get_by_role("button", name="Add to the queue").click()
    page.get_by_role("link", name="Show the queue").click()
    first, second, third = (page.locator(".job", has_text=f"→ {name[:-4]}.x4") for name in names)
    with held(studio, "one.x4.mkv"):
        wait_for_state(first, "Running")
        assert state(third) == "Waiting"
        third.get_by_role("button", name="Move three.mp4 up").click()
        until(page, "document.querySelectorAll('.job .name')[1].textContent == 'three.mp4'")
        third.get_by_role("button", name="Options of three.mp4").click()
        dialog.get_by_label("Model", exact=True).select_option("bicubic")
        dialog.get_by_role("button", name="Save").click()
        third.get_by_text("bicubic").wait_for()
        second.get_by_role("button", name="Cancel").click()
        wait_for_state(second, "Cancelled")
        first.get_by_role("button", name="Pause").click()
        wait_for_state(first, "Pausing")
        first.get_by_role("button", name="Stop now").click()
    wait_for_state(first, "Paused")
    page.close()  # the third job runs meanwhile

    page = context.new_page()
    page.goto("/#/queue")
    first, second, third = (page.locator(".job", has_text=f"→ {name[:-4]}.x4") for name in names)
    wait_for_state(third, "Done")
    assert "frames per second" not in third.locator(".figures").inner_text()
    assert third.get_by_role("link", name="Download").is_visible()
    assert state(first) == "Paused"
    assert state(second) == "Cancelled"
    third.locator("summary", has_text="Command").click()
    assert "--model=bicubic" in third.locator(".command").inner_text()
    first.get_by_role("button", name="Resume").click()
    with held(studio, "one.x4.mkv"):
        wait_for_state(first, "Running")
        first.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Keep the job").click()
        assert state(first) == "Running"
        first.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Cancel the job").click()
    wait_for_state(first, "Cancelled")


def test_a_killed_server_continues_its_job(browser, tmp_path):
    folder = tmp_path / "videos"
    folder.mkdir()
    clip = write_clip(folder / "long.mp4", frames=150, width=64, height=48)
    alone = tmp_path / "alone.mkv"
    command = [sys.executable, "-m", "vsrkit", "upscale", clip, alone, "--model=vsrt-xs"]
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as process,
        running(folder) as studio,
        context_of(browser, studio) as context,
    ):
        context.expected += [
            "ERR_CONNECTION_REFUSED",
            "ERR_INCOMPLETE_CHUNKED",
            "ERR_CONN",
            "ERR_EMPTY",
        ]
        page = context.new_page()
        page.goto(studio.login)
        page.goto("/#/queue")
        job = {"video": video_id(page, "long.mp4"), "options": {"model": "vsrt-xs"}}
        (job,) = page.request.post("/api/jobs", data={"jobs": [job]}).json()["jobs"]
        end = time.monotonic() + PATIENCE_S
        while not list(folder.glob(".long.x4.mkv.vsrkit/part-*.json")):
            assert time.monotonic() < end
            time.sleep(0.005)
        with held(studio, "long.x4.mkv"):
            answer = page.request.get(f"/api/jobs/{job['id']}/parts").json()
            assert 0 < sum(part["frames"] for part in answer["parts"]) < 150
            assert page.request.get(f"/api/jobs/{job['id']}").json()["state"] == "running"
            studio.stop(kill=True)
        page.get_by_text("Reconnecting…").wait_for()
        studio.start()
        card = page.locator(".job")  # the same page, which was not loaded again
        wait_for_state(card, "Running")
        wait_for_state(card, "Done")
        card.locator("summary", has_text="Command").click()
        page.get_by_text("of them in an earlier run").wait_for()
        assert process.wait() == 0
    assert (folder / "long.x4.mkv").read_bytes() == alone.read_bytes()
