"""Pages are self-contained, and names from untrusted files stay text."""

import pytest
from jinja2 import UndefinedError
from tests.pages import HOSTILE, constant_of, texts_of

from vsrkit.evaluate.page import inline_png, render_page


def test_every_value_is_escaped():
    views = [{"clip": HOSTILE, "frame": 0, "pictures": {HOSTILE: {"psnr": "1", "data": "data:"}}}]
    page = render_page("evaluate/slider.html", title=HOSTILE, protocol=HOSTILE, views=views)
    assert texts_of(page).count(HOSTILE) == 3  # title, heading and footer, as text
    assert constant_of(page, "views") == views


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError, match="protocol"):
        render_page("evaluate/slider.html", title="x", views=[])


def test_pictures_become_data_urls():
    assert inline_png(b"\x89PNG") == "data:image/png;base64,iVBORw=="
