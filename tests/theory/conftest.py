"""How a plot is read back."""

from xml.etree import ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def read_series():
    """Each panel of an SVG plot: name of the series -> (x, y), as the file has them."""

    def read(path):
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        panels = []
        for group in root.iter(f"{SVG}g"):
            lines = group.findall(f"{SVG}polyline")
            if lines:
                panels.append({line.get("data-name"): _numbers(line) for line in lines})
                assert all(len(line.get("points").split()) for line in lines)
        return panels

    return read


def _numbers(line):
    return tuple([float(v) for v in line.get(key).split()] for key in ("data-x", "data-y"))
