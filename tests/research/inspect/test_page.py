"""The page of `vsrkit inspect` shows every part of a section, as text."""

import torch
from tests.pages import HOSTILE, texts_of

from vsrkit.research.inspect.page import Figure, Section, encode_figures, render, write_page

SECTIONS = [
    Section(
        title=HOSTILE,
        words=["first", HOSTILE],
        figures=[Figure("flow", torch.zeros(3, 4, 4), HOSTILE)],
        table=[["part", HOSTILE], [HOSTILE, "2"]],
        warning=HOSTILE,
    ),
    Section(title="", words=["second"]),
]


def test_names_stay_text():
    page = render(HOSTILE, SECTIONS, encode_figures(SECTIONS))
    # The title twice; heading, paragraph, caption, column, cell and warning once each.
    assert texts_of(page).count(HOSTILE) == 8
    assert "<script" not in page
    assert page.count("<h2>") == 1
    assert page.count("data:image/png;base64,") == 1


def test_writes_the_page_and_its_pictures(tmp_path):
    made = write_page(tmp_path / "new", "title", SECTIONS)
    assert {path.name for path in made} == {"flow.png", "index.html"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"flow.png", "index.html"}
