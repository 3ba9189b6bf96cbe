"""Watching a result in a browser: both videos in step, single frames where there are no videos."""

from statistics import median

import pytest
from tests.studio.static.conftest import until, video_id

FRAME_S = 1 / 25
SAMPLES = """async () => {
  const videos = [...document.querySelectorAll('video')], samples = [];
  const shown = [null, null];
  videos.forEach((video, side) => {
    const note = (_, { mediaTime }) => {
      shown[side] = mediaTime;
      video.requestVideoFrameCallback(note);
    };
    video.requestVideoFrameCallback(note);
  });
  document.querySelector('[aria-label=Play]').click();
  while (samples.length < 10) {
    await new Promise(done => setTimeout(done, 60));
    if (!shown.includes(null)) samples.push([...shown]);
  }
  document.querySelector('[aria-label=Pause]')?.click();
  return samples;
}"""


@pytest.fixture
def results(page):
    """Two finished jobs: one that browsers play and one that they do not."""
    clip = video_id(page, "clip.mp4")
    jobs = [
        {"video": clip, "options": {"model": "bicubic", **options}, "output": name}
        for name, options in (("played.mp4", {}), ("lossless.mkv", {"codec": "ffv1"}))
    ]
    jobs = page.request.post("/api/jobs", data={"jobs": jobs}).json()["jobs"]
    numbers = [job["id"] for job in jobs]
    for number in numbers:
        while page.request.get(f"/api/jobs/{number}").json()["state"] != "done":
            page.wait_for_timeout(100)
    return numbers


def sizes(page):
    return page.evaluate(
        "[...document.querySelectorAll('.stack img:not([hidden])')]"
        ".map(x => [x.naturalWidth, x.naturalHeight])"
    )


def wait_for_pictures(page, frame):
    until(
        page,
        f"document.querySelector('.comparison').dataset.frame == '{frame}' && "
        "document.querySelectorAll('.stack img:not([hidden])').length == 2",
    )


def test_source_and_result_are_in_step(page, results):
    played, lossless = results
    page.goto(f"/#/watch/{played}")
    wait_for_pictures(page, 0)
    assert sizes(page) == [[96, 64], [384, 256]]
    samples = page.evaluate(SAMPLES)
    assert samples[-1][1] > samples[0][1]  # it played
    # The median: a busy machine may hold back one of the two for a moment, until it catches up.
    assert median(abs(source - result) for source, result in samples) <= FRAME_S + 1e-6
    until(page, "document.querySelectorAll('.stack img:not([hidden])').length == 2")
    frame = int(page.locator(".comparison").get_attribute("data-frame"))
    page.locator(".stage").focus()
    page.keyboard.press(",")
    wait_for_pictures(page, frame - 1)
    page.keyboard.press(".")
    wait_for_pictures(page, frame)
    for shown in page.evaluate("[...document.querySelectorAll('video')].map(x => x.currentTime)"):
        assert shown == pytest.approx((frame + 0.5) * FRAME_S, abs=FRAME_S / 4)

    page.goto(f"/#/watch/{lossless}")
    wait_for_pictures(page, 0)
    assert sizes(page) == [[96, 64], [384, 256]]
    assert page.locator("video[src]").count() == 0
    page.locator(".stage").focus()
    page.keyboard.press(".")
    wait_for_pictures(page, 1)
    page.get_by_role("button", name="Play").click()
    until(page, "Number(document.querySelector('.comparison').dataset.frame) >= 4")
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("link", name="Download").is_visible()
