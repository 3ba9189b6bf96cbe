"""The numbers that papers printed, to stand beside ours; `published.json` holds every digit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from vsrkit.data.layouts import SetName
from vsrkit.evaluate.protocol import DEFAULTS, PROTOCOLS, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row of a paper's table. Scores are (PSNR, SSIM) in the digits that were printed."""

    method: str
    set: SetName
    channel: str
    table: str
    clips: Mapping[str, tuple[str, str]]
    average: tuple[str, str]
    source: str
    params_m: float | None = None  # millions, as printed
    note: str = ""

    @property
    def title(self) -> str:
        """The method with what sets this row apart."""
        return f"{self.method} ({self.note})" if self.note else self.method


def load_published() -> list[Published]:
    """Every row, in the order of the paper."""
    content = json.loads(files("vsrkit.evaluate").joinpath("published.json").read_text("utf-8"))
    return [_row(row, content["source"]) for row in content["rows"]]


def _row(row: dict[str, Any], source: str) -> Published:
    clips = {name: (pair[0], pair[1]) for name, pair in row["clips"].items()}
    average = (row["average"][0], row["average"][1])
    return Published(**{**row, "clips": clips, "average": average, "source": source})


def published_for(set_name: SetName, protocol: Protocol) -> list[Published]:
    """Rows that were measured as this protocol measures, each method once; often none."""
    usual = PROTOCOLS[DEFAULTS[set_name]]
    # Tiles are a way of running a model, and the papers' LR, border and frames are the usual ones.
    if replace(protocol, name=usual.name, tile=None, channel=usual.channel) != usual:
        return []
    rows: dict[tuple[str, tuple[str, str]], Published] = {}
    for row in load_published():
        if row.set == set_name and row.channel == protocol.channel:
            rows.setdefault((row.title, row.average), row)
    return list(rows.values())
