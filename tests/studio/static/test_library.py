"""The library in a browser: uploads, broken files, names, narrow windows, keys."""

import pytest
from tests.clips import write_clip
from tests.studio.static.conftest import HOSTILE, context_of, paused_queue, until, video_id


def test_uploads_a_file_and_repeats_what_was_lost(page, context, studio, tmp_path):
    context.expected.append("net::ERR_FAILED")
    clip = write_clip(tmp_path / "upload.mp4", width=64, height=48)
    lost = []

    def lose_first(route):
        if lost:
            return route.continue_()
        lost.append(route.request.url)
        return route.abort()

    page.route("**/api/uploads/*?offset=*", lose_first)
    page.set_input_files("input[type=file]", clip)
    page.get_by_role("link", name="upload.mp4", exact=True).wait_for()
    card = page.locator(".card", has_text="upload.mp4")
    assert "64×48" in card.inner_text()
    assert "no audio" in card.locator(".chip").inner_text()
    assert (studio.folder / "upload.mp4").read_bytes() == clip.read_bytes()
    assert len(lost) == 1
    assert page.locator(".upload").count() == 0


def test_an_answer_older_than_an_event_changes_nothing(page, studio, tmp_path):
    page.get_by_role("link", name="clip.mp4", exact=True).wait_for()
    held = []

    def hold_first(route):
        if held:
            return route.continue_()
        held.append((route, route.fetch().json()))
        return None

    page.route("**/api/library", hold_first)
    content = write_clip(tmp_path / "late.mp4", width=64, height=48).read_bytes()
    wanted = {"name": "late.mp4", "size": len(content), "key": "late"}
    upload = page.request.post("/api/uploads", data=wanted).json()
    page.request.put(f"/api/uploads/{upload['id']}?offset=0", data=content)
    found = video_id(page, "late.mp4")
    while not held:
        page.wait_for_timeout(30)
    route, answer = held[0]
    for video in answer["folders"][0]["videos"]:
        if video["id"] == found:
            video["state"] = "pending"
    page.wait_for_timeout(300)  # the event about the video has come
    route.fulfill(json=answer)
    page.wait_for_timeout(300)
    assert page.get_by_role("link", name="late.mp4", exact=True).count() == 1


def test_continues_an_upload_of_a_closed_page(page, context, studio, tmp_path):
    clip = write_clip(tmp_path / "resumed.mp4", frames=20, width=64, height=48)
    content, stat = clip.read_bytes(), clip.stat()
    key = f"{clip.name}-{stat.st_size}-{stat.st_mtime_ns // 1_000_000}"
    wanted = {"name": clip.name, "size": stat.st_size, "key": key}
    upload = page.request.post("/api/uploads", data=wanted).json()
    half = stat.st_size // 2
    page.request.put(f"/api/uploads/{upload['id']}?offset=0", data=content[:half])
    page.close()
    page = context.new_page()
    sent = []
    page.on("request", lambda request: request.method == "PUT" and sent.append(request.url))
    page.goto("/")
    page.get_by_text("choose the same file again").wait_for()
    page.set_input_files("input[type=file]", clip)
    page.get_by_role("link", name="resumed.mp4", exact=True).wait_for()
    assert [url.partition("offset=")[2] for url in sent] == [str(half)]
    assert (studio.folder / "resumed.mp4").read_bytes() == content


def test_shows_the_error_of_a_broken_file(page):
    card = page.locator(".card", has_text="broken.mp4")
    card.locator(".error").wait_for()
    assert "broken.mp4" in card.locator(".error").inner_text()
    assert card.get_by_role("link", name="Try").count() == 0


def test_shows_a_hostile_name_as_text(page):
    video_id(page, HOSTILE)
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.get_by_role("link", name=HOSTILE, exact=True).click()
    page.get_by_role("heading", name=HOSTILE, exact=True, level=1).wait_for()
    assert page.locator("img[src=x]").count() == 0
    assert HOSTILE in page.title()


def test_fits_a_phone(browser, studio, session, results):
    with context_of(browser, studio, session, viewport={"width": 360, "height": 740}) as context:
        page = context.new_page()
        page.goto("/")
        clip = video_id(page, "clip.mp4")
        views = {
            "library": ".card .actions",
            f"try/{clip}": ".model",
            "queue": ".job .actions",
            f"watch/{results[0]}": ".stack img",
        }
        for view, content in views.items():
            page.goto(f"/#/{view}")
            page.locator(content).first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") == 360, view


def tab_to(page, label):
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.ariaLabel") == label:
            return
    raise AssertionError(f"{label} cannot be reached")


def test_works_by_keyboard_alone(page):
    page.get_by_role("link", name="clip.mp4", exact=True).wait_for()
    focused = "document.activeElement.textContent || document.activeElement.ariaLabel"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    tab_to(page, "Search by name")
    page.keyboard.type("clip")
    until(page, "document.querySelectorAll('.card').length == 1")
    tab_to(page, "Upscale clip.mp4")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Upscale clip.mp4")
    dialog.wait_for()
    assert dialog.evaluate("dialog => dialog.contains(document.activeElement)")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.evaluate("document.activeElement.ariaLabel") == "Upscale clip.mp4"
    with paused_queue(page):  # a card that changes keeps the focus
        job = {"video": video_id(page, "clip.mp4"), "options": {"model": "bicubic"}}
        (job,) = page.request.post("/api/jobs", data={"jobs": [job]}).json()["jobs"]
        page.locator(".card .badge", has_text="in the queue").wait_for()
        assert page.evaluate("document.activeElement.ariaLabel") == "Upscale clip.mp4"
        page.request.post(f"/api/jobs/{job['id']}/cancel")
