"""Published results, and which protocols they are comparable with."""

import pytest

from vsrkit.evaluate.protocol import PROTOCOLS
from vsrkit.evaluate.tables import load_elsewhere, load_published, published_for, sources


def test_published_averages_match_their_clips() -> None:
    rows = load_published()
    assert len(rows) == 45
    for row in rows:  # catches typing errors
        if row.clips and row.method != "RBPN":  # whose printed average is not over these clips
            for place, unit in ((0, 0.011), (1, 0.0011)):
                mean = sum(float(pair[place]) for pair in row.clips.values()) / len(row.clips)
                assert mean == pytest.approx(float(row.average[place]), abs=unit), row.title
    tables = {row.table for row in rows}
    assert tables == {"REDS4", "Vid4", "Vimeo-90K-T", "REDS4 ablation", "Vid4 supplement"}
    ours = {row.set: row.average for row in rows if row.method == "VSR-Transformer"}
    assert ours["reds4"] == ("31.19", "0.8815")


def paper(set_name, protocol):
    return [row for row in published_for(set_name, protocol) if not row.elsewhere]


def test_published_rows_are_returned_only_for_comparable_protocols() -> None:
    methods = [row.method for row in paper("vid4", PROTOCOLS["vid4"])]
    assert methods.count("VSR-Transformer") == 1  # two tables have it, with the same numbers
    assert len(methods) == 13
    assert len(paper("reds4", PROTOCOLS["reds4-release"])) == 12
    assert len(paper("vimeo90k-t", PROTOCOLS["vimeo90k-t"])) == 9
    assert len(published_for("vimeo90k-t", PROTOCOLS["vimeo90k-t-rgb"])) == 8
    for name in ("vid4-crop8", "vid4-crf25", "vid4-bd-matlab12", "rgb"):
        assert published_for("vid4", PROTOCOLS[name]) == []
    assert published_for("vid4", PROTOCOLS["vid4"].at_scale(2)) == []
    assert published_for("folder", PROTOCOLS["rgb"]) == []


def test_rows_published_elsewhere_follow_those_of_the_paper() -> None:
    found = published_for("reds4", PROTOCOLS["reds4"])
    labels = [row.label for row in found]
    assert labels == sorted(labels)
    assert [row.title for row in found if row.elsewhere] == [
        "BasicVSR++",
        "VRT",
        "RVRT",
        "PSRT-recurrent",
        "IART",
        "PSRT-recurrent (trained on 6 frames)",
        "IART (trained on 6 frames)",
    ]
    assert [line.split(":")[0] for line in sources(found)] == ["published", "published elsewhere"]
    blurred = published_for("vid4", PROTOCOLS["vid4-bd"])
    assert {row.method: row.average[0] for row in blurred} == {
        "BasicVSR++": "29.04",
        "VRT": "29.42",
        "RVRT": "29.54",
        "IART": "29.68",
    }


def test_every_row_published_elsewhere_is_plausible() -> None:
    rows = load_elsewhere()
    assert len(rows) == 29
    assert {row.set for row in rows} == {"reds4", "vimeo90k-t", "vid4", "udm10"}
    for row in rows:
        assert 27 < float(row.average[0]) < 42
        assert 0.83 < float(row.average[1]) < 0.98
        assert row.channel == ("rgb" if row.set == "reds4" else "y")
        assert "github.com/kai422/IART" in row.source
