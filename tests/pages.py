"""Check that an HTML page is self-contained and that no name became markup in it."""

import json
import re
from html.parser import HTMLParser

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert('2')</script>\"&{{ 7 * 7 }}"


class _Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []  # (tag, attributes)
        self.texts = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def texts_of(page):
    """The text of a page as a browser shows it, with its title; checks its elements first."""
    parser = _Elements()
    parser.feed(page)
    parser.close()
    for tag, attributes in parser.found:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:"), (tag, attributes)
    scripts = [tag for tag, _ in parser.found if tag == "script"]
    assert len(scripts) <= 1
    return "\n".join(parser.texts)


def constant_of(page, name):
    """The value of `const name = ...;` in the script of a page."""
    return json.loads(re.search(rf"^const {name} = (.*);$", page, re.MULTILINE)[1])
