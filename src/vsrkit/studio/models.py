"""The models that jobs and previews can use."""

from pathlib import Path
from typing import Any

from torch import nn

from vsrkit.models.zoo import default_model
from vsrkit.models.zoo.listing import describe_all


class Models:
    """The table of models as it was when the server started."""

    def __init__(self) -> None:
        self._rows = describe_all()
        self.default = default_model()
        self.ready = tuple(
            row["name"] for row in self._rows if row["weights"] or not row["needs_weights"]
        )

    def scale_of(self, model: str | Path | nn.Module | None) -> int:
        """The factor of a model; None means the default one."""
        name = self.default if model is None else model
        return next(int(row["scale"]) for row in self._rows if row["name"] == name)

    def as_json(self) -> dict[str, Any]:
        """The table."""
        columns = ("name", "summary", "scale", "parameters", "frames", "gflop_per_megapixel")
        return {
            "default": self.default,
            "models": [
                {name: row[name] for name in (*columns, "licence")}
                | {"ready": row["name"] in self.ready}
                for row in self._rows
            ],
        }
