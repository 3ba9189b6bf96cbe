"""Pages with hostile names and metadata: text stays text in every template."""

import json

import pytest
import torch
from tests.clips import write_clip
from tests.fuzz.corpus import seeded
from tests.pages import constant_of, texts_of
from tests.upscale import upscaled

from vsrkit.evaluate.page import render_page
from vsrkit.research.inspect.page import Figure, Section, encode_figures, render
from vsrkit.upscale.fidelity import write_report
from vsrkit.video.read import open_source

PIECES = ["<", ">", '"', "'", "&", "</script>", "<script>alert(1)</script>", "{{ 7 * 7 }}", "\n"]
PIECES += ["{% raw %}", "<!--", "-->", "javascript:", " onload=x ", "\u2028", "\u202e", "é", "\\"]
PIECES += ["<svg/onload=alert(1)>", "&lt;", "\x00", "\ufffe", "a", "${x}", "`", "]]>", "\x1b[31m"]


def hostile(random):
    return "".join(random.choices(PIECES, k=random.randint(1, 12)))


@pytest.mark.parametrize("seed", range(20))
def test_names_stay_text(seed):
    random = seeded("pages", seed)
    name, other = hostile(random), hostile(random)
    views = [{"clip": name, "frame": 0, "pictures": {other: {"psnr": name, "data": "data:"}}}]
    page = render_page("evaluate/slider.html", title=name, protocol=other, views=views)
    texts_of(page)
    assert constant_of(page, "views") == json.loads(json.dumps(views))
    sections = [
        Section(
            title=name,
            words=[other],
            figures=[Figure("f", torch.zeros(3, 2, 2), name)],
            table=[[name, other], [other, name]],
            warning=other,
        )
    ]
    page = render(name, sections, encode_figures(sections))
    texts_of(page)
    assert "<script" not in page


def test_the_report_of_a_file_with_a_hostile_name(tmp_path):
    name = "<img src=x onerror=alert(1)>\"'&{{ 7 }}"
    source = write_clip(tmp_path / f"{name}.mkv", frames=3)
    upscaled.upscale(source, tmp_path / f"{name}.out.mkv")
    write_report(
        open_source(source), open_source(tmp_path / f"{name}.out.mkv"), tmp_path / "r.html"
    )
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    texts_of(page)
    assert "<img src=x" not in page
