"""Trying a video in a browser: the preview with its divider, the plan, messages at fields."""

import pytest
from tests.studio.static.conftest import paused_queue, until, video_id


@pytest.fixture
def opened(page, context):
    """The view of a video with two models that are quick."""
    context.add_init_script("localStorage.setItem('vsrkit-models', '[\"bicubic\", \"vsrt-xs\"]')")
    clip = video_id(page, "clip.mp4")
    page.goto(f"/#/try/{clip}")
    page.reload()
    return page


def shown_edges(page, index):
    """The left and right edge of a picture in the stage, in CSS pixels of the stage."""
    return (
        page.locator(".slot")
        .nth(index)
        .evaluate(
            """slot => {
          const [, right, , left = right] = slot.style.clipPath.match(/[\\d.]+/g).map(Number);
          return [Math.round(left), Math.round(slot.clientWidth - right)];
        }"""
        )
    )


def test_previews_models_with_dividers(opened, studio):
    page, before = opened, sorted(studio.folder.iterdir())
    divider = page.get_by_role("slider", name="Divider between Source and bicubic")
    page.get_by_role("slider", name="Divider between bicubic and vsrt-xs").wait_for()
    assert divider.get_attribute("aria-valuenow") == "33"
    start = shown_edges(page, 1)
    divider.focus()
    for key in ("ArrowLeft", "ArrowLeft", "PageDown"):
        page.keyboard.press(key)
    assert divider.get_attribute("aria-valuenow") == "21"
    assert shown_edges(page, 0)[1] == shown_edges(page, 1)[0] < start[0]
    box = divider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 30, box["y"] + 20)
    page.mouse.up()
    assert int(divider.get_attribute("aria-valuenow")) > 21
    page.get_by_role("button", name="Side by side").click()
    assert divider.is_hidden()
    page.locator(".plan dt", has_text="Memory").nth(1).wait_for()
    figures = page.locator(".plan").first.inner_text()
    assert "384×256" in figures  # of the whole video
    # A region that is drawn gives pictures of its size, at four times its pixels.
    frame = page.locator(".frame").bounding_box()
    scale = frame["width"] / 96
    page.mouse.move(frame["x"] + 2, frame["y"] + 2)
    page.mouse.down()
    page.mouse.move(frame["x"] + 2 + 32 * scale, frame["y"] + 2 + 24 * scale, steps=3)
    page.mouse.up()
    sizes = (
        "[...document.querySelectorAll('.slot img')].map(x => [x.naturalWidth, x.naturalHeight])"
    )
    until(page, f"{sizes}.length == 3 && {sizes}.every(([w]) => w == 128)")
    assert page.evaluate(sizes) == [[128, 96]] * 3
    assert sorted(studio.folder.iterdir()) == before


def test_shows_a_message_at_the_field(opened, context):
    page = opened
    context.expected.append("400")
    page.locator("summary", has_text="Encoder").click()
    field = page.get_by_label("Quality (CRF)", exact=True)
    field.fill("soft")
    message = page.locator(".field", has=field).locator(".error")
    message.wait_for()
    assert "--crf" in message.inner_text()
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("20")
    message.wait_for(state="hidden")
    assert field.get_attribute("aria-invalid") is None
    page.locator("summary", has_text="Model").click()
    with page.expect_response("**/api/options/check") as answer:
        page.get_by_label("Sharpness", exact=True).fill("0.5")
    assert answer.value.json() == {"arguments": ["--sharpness=0.5", "--crf=20"]}
    page.get_by_role("button", name="Reset Sharpness").click()
    with paused_queue(page):  # else the job may be finished before it is cancelled
        page.get_by_role("button", name="Add to the queue").click()
        page.get_by_text("is in the queue").wait_for()
        page.get_by_role("link", name="Show the queue").click()
        card = page.locator(".job", has_text="crf 20").first
        card.get_by_role("button", name="Cancel").click()
        card.get_by_text("Cancelled").wait_for()
