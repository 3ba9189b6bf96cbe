"""How a plot is read back."""

from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def read_series(path):
    """Each panel of an SVG plot: name of the series -> (x, y), as the file has them."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    panels = []
    for group in root.iter(f"{SVG}g"):
        lines = group.findall(f"{SVG}polyline")
        if lines:
            panels.append({line.get("data-name"): _numbers(line) for line in lines})
            assert all(line.get("points") for line in lines)
    return panels


def _numbers(line):
    return tuple([float(v) for v in line.get(key).split()] for key in ("data-x", "data-y"))
