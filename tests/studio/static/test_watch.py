"""Watching a result in a browser: both videos in step, single frames where there are no videos."""

from statistics import median

import pytest
from tests.studio.static.conftest import until

FRAME_S = 1 / 25
SAMPLES = """() => new Promise(done => {
  const [source, result] = document.querySelectorAll('video'), samples = [];
  let shown = null;  // time of the source's frame on the screen
  const noteSource = (_, { mediaTime }) => {
    shown = mediaTime;
    source.requestVideoFrameCallback(noteSource);
  };
  const note = (_, { mediaTime }) => {
    if (shown !== null) samples.push([shown, mediaTime]);
    result.requestVideoFrameCallback(note);
  };
  source.requestVideoFrameCallback(noteSource);
  result.requestVideoFrameCallback(note);
  document.querySelector('[aria-label=Play]').click();
  const end = () => {
    if (samples.length < 20 && !result.ended) return void setTimeout(end, 20);
    document.querySelector('[aria-label=Pause]')?.click();
    done(samples);
  };
  end();
})"""


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
    track = page.locator(".track").bounding_box()  # the bar of finished parts is as long
    assert page.locator(".finished i").bounding_box()["width"] == pytest.approx(
        track["width"], abs=1
    )
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


def test_the_report_runs_its_own_script_only(page, context, studio, results):
    context.expected.append("Content Security Policy")  # the script that is added below
    page.goto(f"/api/jobs/{results[0]}/report")
    page.locator("#worst .divider").first.wait_for()
    assert page.locator("#shots tr").count() == 1
    path = studio.folder / ".vsrkit-studio" / "jobs" / results[0] / "report.html"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("<body>", "<body><script>document.title = 'bad'</script>"))
    page.reload()
    page.locator("#worst .divider").first.wait_for()
    assert page.title() != "bad"
