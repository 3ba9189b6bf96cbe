"""Which of our models stands for which row of the paper's tables, and how to get its weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from vsrkit.data.layouts import SetName
from vsrkit.errors import VsrkitError, WeightsError
from vsrkit.evaluate.protocol import Protocol
from vsrkit.evaluate.tables import Published, published_for
from vsrkit.models.zoo import MODELS, load_model, local_weights
from vsrkit.models.zoo.fetch import SOURCES

TableName: TypeAlias = Literal["reds4", "vid4", "vimeo90k-t"]

_VIMEO = {
    "Bicubic": "bicubic",
    "RCAN": "rcan",
    "VESPCN": "vespcn",
    "SPMC": "spmc",
    "TOFlow": "toflow",
    "FRVSR": "frvsr",
    "DUF": "duf-52l",
    "RBPN": "rbpn",
    "EDVR-L": "edvr-l-vimeo90k",
    "BasicVSR": "basicvsr-vimeo90k-bi",
    "IconVSR": "iconvsr-vimeo90k",
    "VSR-Transformer": "vsrt-vimeo",
}
_REDS = {
    "Bicubic": "bicubic",
    "RCAN": "rcan",
    "TOFlow": "toflow",
    "DUF": "duf-52l",
    "EDVR-M": "edvr-m",
    "EDVR-L": "edvr-l",
    "BasicVSR": "basicvsr-reds4",
    "IconVSR": "iconvsr-reds",
    "VSR-Transformer": "vsrt-reds",
}
MODEL_OF: dict[TableName, dict[str, str]] = {"reds4": _REDS, "vid4": _VIMEO, "vimeo90k-t": _VIMEO}
RECIPES = {"vsrt-reds": "recipes/vsrt_reds.py", "vsrt-vimeo": "recipes/vsrt_vimeo90k.py"}
LONGER = "the public weights saw longer clips in training than the printed row's 5 frames"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table: what was printed, and what of ours can be measured for it."""

    published: Published | None  # None: a model of ours that the paper does not have
    model: str | None  # name in the zoo; None: no model of ours is this
    file: Path | None = None  # weights given by hand, in place of those at hand
    remark: str = ""

    @property
    def title(self) -> str:
        """What the line is called."""
        return self.published.title if self.published else str(self.model)

    @property
    def source(self) -> str | None:
        """What to load, if it can be measured: a name or a file."""
        if self.file:
            return str(self.file)
        if self.model is None or (local_weights(self.model) is None and self.model != "bicubic"):
            return None
        return self.model

    @property
    def hint(self) -> str:
        """How to get what is missing."""
        if self.model is None:
            return "no weights of this are public; train it so (docs/train.md)"
        if self.model in SOURCES:
            return f"vsrkit weights get {self.model}"
        by_hand = f"-m {self.model}=FILE with its authors' checkpoint"
        if self.model in RECIPES:
            return f"{by_hand}, or vsrkit train {RECIPES[self.model]}"
        return by_hand


def rows_of(table: TableName, protocol: Protocol, only: Sequence[str] = ()) -> list[Row]:
    """The table's rows in its order, then our own models whose weights are at hand.

    only: names of the zoo, methods of the table, or NAME=FILE; all rows if empty.
    """
    name: SetName = table
    rows = [_row(table, p) for p in published_for(name, protocol) if "ablation" not in p.table]
    ours = [n for n, e in MODELS.items() if e.architecture == "vsrt-small" and local_weights(n)]
    rows += [Row(published=None, model=n) for n in ours]
    return [row for word in only for row in _chosen(rows, word)] if only else rows


def _row(table: TableName, printed: Published) -> Row:
    model: str | None = MODEL_OF[table].get(printed.method)
    remark = ""
    if printed.note == "trained on 5 frames":
        remark = LONGER
    elif printed.note:
        model = None  # trained and tested on 7 frames: nobody has published such weights
    return Row(published=printed, model=model, remark=remark)


def _chosen(rows: Sequence[Row], word: str) -> list[Row]:
    """The rows that a word names, with the file that it gives for them."""
    name, _, file = word.partition("=")
    path = Path(file) if file else None
    if path is not None and not path.is_file():
        raise VsrkitError(f"{path} is not a file; write -m NAME=FILE with a checkpoint")
    wanted = name.lower()
    found = [r for r in rows if wanted in (str(r.model), r.title.lower(), _method(r).lower())]
    if not found and name in MODELS:  # of the zoo, but not of this table
        found = [Row(published=None, model=name)]
    if not found:
        known = ", ".join(dict.fromkeys(str(r.model) for r in rows if r.model))
        raise VsrkitError(f"no row or model called {name!r}; this table has {known}")
    chosen = [
        Row(published=r.published, model=r.model, file=path, remark=r.remark)
        for r in found
        if r.model or not path
    ]
    for row in chosen:
        _check_kind(row)
    return chosen


def _check_kind(row: Row) -> None:
    """A file must be of the model that it is given for, or its numbers stand in the wrong row."""
    if row.file is None or row.model is None:
        return
    found: Any = load_model(row.file).config
    wanted = MODELS[row.model].config
    if type(found) is not type(wanted):
        kinds = type(found).__name__, type(wanted).__name__
        raise WeightsError(f"{row.file} is a model of {kinds[0]}, {row.model} wants {kinds[1]}")


def _method(row: Row) -> str:
    return row.published.method if row.published else ""
