"""The authors' tiles, against tables and maps made by their code."""

import json

import numpy as np
import pytest
import torch
from tests.paths import GOLDEN

from vsrkit.inference.tiles import plan_pasted, run_pasted
from vsrkit.models.spec import window_indices

FOLDER = GOLDEN
PROTOCOL = json.loads((FOLDER / "protocol.json").read_text())
MAPS = np.load(FOLDER / "stitch_map.npz")
SIZES = list(PROTOCOL["tiles_lq64_overlap32"])


def axis_of(table: list[list[int]]) -> list[tuple[int, int]]:
    """For each HR pixel: start of the LR tile that supplied it, and its place in that tile."""
    length = max(row[3] for row in table)
    pixels = [(-1, -1)] * length
    for lr_start, _, hr_start, hr_stop, local_start, _ in table:
        for offset in range(hr_stop - hr_start):
            pixels[hr_start + offset] = (lr_start, local_start + offset)
    return pixels


@pytest.mark.parametrize("size", SIZES)
def test_every_pixel_comes_from_the_tile_the_authors_took_it_from(size: str) -> None:
    wanted = PROTOCOL["tiles_lq64_overlap32"][size]
    for side, table in zip(size.split("x"), (wanted["rows"], wanted["cols"]), strict=True):
        ours = [(-1, -1)] * (4 * int(side))
        for patch in plan_pasted(int(side), 64, 4):
            for local in range(patch.keep.start, patch.keep.stop):
                ours[patch.start * 4 + local] = (patch.start, local)
        assert ours == axis_of(table)


def test_no_tile_is_run_twice() -> None:
    assert len(plan_pasted(320, 64, 4)) == 9  # the release runs ten, of which two are the same
    assert len(plan_pasted(64, 64, 4)) == 1
    assert plan_pasted(64, 64, 4)[0].keep == slice(0, 256)


@pytest.mark.parametrize("size", ["64x112", "70x101"])
def test_stitched_frames_are_the_authors(size: str) -> None:
    h, w = (int(side) for side in size.split("x"))
    rows = torch.arange(h)[:, None].expand(h, w)
    columns = torch.arange(w).expand(h, w)
    clip = torch.stack([rows, columns, rows]).float()[None, None]

    def show_where(tile: torch.Tensor) -> torch.Tensor:
        """Local row, local column, and the tile's corner, as the maps have them."""
        corner = tile[0, 0, 0, 0, 0] * 1000 + tile[0, 0, 1, 0, 0]
        local_y = torch.arange(256.0)[:, None].expand(256, 256)
        return torch.stack([local_y, local_y.T, corner.expand(256, 256)])[None, None]

    local_y, local_x, corner = run_pasted(show_where, clip, size=64, scale=4)[0, 0]
    assert (local_y.numpy() == MAPS[f"{size}.local_y"]).all()
    assert (local_x.numpy() == MAPS[f"{size}.local_x"]).all()
    assert (corner.numpy() == MAPS[f"{size}.tile_corner"]).all()


def test_windows_are_padded_as_the_authors_pad() -> None:
    for key, paddings in PROTOCOL["frame_indices"].items():
        frames, length = (int(part.lstrip("Tlen")) for part in key.split("_"))
        for padding, table in paddings.items():
            for centre, wanted in table.items():
                assert window_indices(int(centre), length, frames, padding) == wanted


def test_a_frame_smaller_than_the_tile_is_refused() -> None:
    with pytest.raises(ValueError, match="pad the frame first"):
        plan_pasted(63, 64, 4)
