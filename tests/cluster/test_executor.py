"""A cluster of Dask: the same bytes, workers that die, join, differ or are refused."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module

import psutil
import pytest
import torch
from tests.clips import noise_picture, write_clip
from tests.cluster.dask_processes import Processes
from tests.data.trees import write_vid4
from tests.upscale import upscaled

from vsrkit.cluster import worker as worker_module
from vsrkit.cluster.connect import connect
from vsrkit.cluster.executor import DaskExecutor, _Worker
from vsrkit.cluster.worker import WorkerFacts
from vsrkit.errors import VsrkitError
from vsrkit.evaluate.benchmark import evaluate_models
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine
from vsrkit.inference.reference import refer
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.vespcn import VESPCN, VESPCNConfig
from vsrkit.upscale import produce
from vsrkit.upscale.work_folder import WorkFolder

pytest.importorskip("distributed")


def upscale(source, target, **options):
    given = {"precision": "float32", "max_memory": "4G", **options}
    return upscaled.upscale(source, target, **given)


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    pictures = [noise_picture(n // 20 * 1000 + n % 20, 24, 16, smooth=True) for n in range(60)]
    folder = tmp_path_factory.mktemp("film")
    return write_clip(folder / "in.mkv", width=24, height=16, pictures=pictures)


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    monkeypatch.setattr(produce, "PART_FRAMES", 12)


@pytest.fixture
def whole(film):
    """What one process makes of the film."""
    target = film.with_name("whole.mkv")
    if not target.exists():
        upscale(film, target, model="vsrt-s")
    return target.read_bytes()


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    started = Processes(tmp_path_factory.mktemp("cluster"))
    started.worker("first")
    started.worker("second", "--no-nanny")
    yield started
    started.close()


@pytest.fixture(scope="module")
def cluster(processes):
    with connect(processes.address) as executor:
        yield executor


def content(path):
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.iterdir()}
    return path.read_bytes()


def window_model():
    torch.manual_seed(0)
    return VESPCN(VESPCNConfig()).eval()


def recurrent_model():
    torch.manual_seed(0)
    return RRN(RRNConfig(channels=8, blocks=1)).eval()


@pytest.mark.parametrize(
    ("name", "model"),
    [("out.mkv", "vsrt-s"), ("out.mp4", window_model), ("frames", recurrent_model)],
)
def test_workers_without_the_input_make_the_same_bytes(
    film, cluster, processes, tmp_path, name, model
):
    model = model if isinstance(model, str) else model()
    one, many, seen = tmp_path / "one" / name, tmp_path / "many" / name, []
    upscale(film, one, model=model)
    for _ in range(2):  # the processes of the workers keep the model for the second time
        upscale(
            unseen(film), many, model=model, executor=cluster, on_progress=seen.append,
            overwrite=True,
        )  # fmt: skip
        assert content(many) == content(one)
    assert [path.name for path in many.parent.iterdir()] == [name]
    assert max(progress.workers for progress in seen) == 2
    assert max(progress.parts for progress in seen) == 2
    for worker in ("first", "second"):
        copies = (processes.folder / worker / "cache/inputs").glob("*/*")
        assert [path.name for path in copies] == ["in.mkv"]


def test_a_worker_without_int8_convolutions_has_no_speed_in_int8(monkeypatch):
    model = VESPCN(VESPCNConfig())
    floats = Precision("float32", channels_last=True)
    both = [floats, replace(floats, int8="int8")]
    reference = refer(Engine(model, floats), None)
    assert worker_module._rate(reference, both)[both[1]] > 0
    monkeypatch.setattr(worker_module, "int8_fault", lambda: "missing")
    speeds = worker_module._rate(reference, both)
    assert speeds[both[0]] > 0
    assert speeds[both[1]] == 0


def test_workers_of_one_machine_share_its_cores():
    executor = DaskExecutor(None)
    for name, machine, cores, slots in (
        ("a", "first", 8, 1),
        ("b", "first", 8, 3),
        ("c", "second", 8, 2),
        ("limited", "third", 2, 1),  # by a batch system, a container or taskset
    ):
        facts = WorkerFacts(machine=machine, cores=cores, all_cores=8)
        executor._workers[name] = _Worker(name, slots, facts)
    threads = {name: executor._settings(w).threads for name, w in executor._workers.items()}
    assert threads == {"a": 2, "b": 2, "c": 4, "limited": 2}


def test_clips_are_measured_on_workers(cluster, tmp_path):
    write_vid4(tmp_path / "vid4")
    options = {"clips": ["city", "walk"], "precision": "float32"}
    (one,) = evaluate_models(["vsrt-s"], tmp_path / "vid4", **options)
    (many,) = evaluate_models(["vsrt-s"], tmp_path / "vid4", **options, executor=cluster)
    timed = {"seconds_per_frame": 0.0, "peak_memory_mb": 0.0}
    assert replace(many, **timed) == replace(one, **timed)


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it took a minute")


def unseen(path):
    """A path that other processes do not find, because each has its own current folder."""
    return f"/proc/self/cwd/{os.path.relpath(path)}"


def workers_of(executor):
    """Process numbers of the workers, by name."""
    alive = executor._alive()
    pids = executor._client.run(os.getpid)
    return {about["name"]: pids[address] for address, about in alive.items()}


def test_the_part_of_a_killed_worker_runs_elsewhere(film, whole, cluster, tmp_path):
    victims = [workers_of(cluster)["first"]]

    def kill(progress):
        if progress.parts == 2 and victims:
            os.kill(victims.pop(), signal.SIGKILL)

    upscale(film, tmp_path / "two.mkv", model="vsrt-s", executor=cluster, on_progress=kill)
    assert not victims
    assert (tmp_path / "two.mkv").read_bytes() == whole


def test_a_killed_process_of_a_worker_is_replaced(film, whole, cluster, tmp_path):
    """The children of a worker compute the parts."""
    worker = psutil.Process(workers_of(cluster)["second"])
    done = []

    def kill(progress):
        children = [child for child in worker.children() if "spawn_main" in str(child.cmdline())]
        if progress.parts == 2 and children and not done:
            done.append(children[0].kill())

    upscale(film, tmp_path / "two.mkv", model="vsrt-s", executor=cluster, on_progress=kill)
    assert done
    assert (tmp_path / "two.mkv").read_bytes() == whole


def test_a_worker_that_is_admitted_twice_keeps_its_calls(film, whole, cluster, tmp_path):
    """As when it joins while a job begins."""
    admitted = []

    def admit_again(progress):
        if progress.parts and not admitted:
            workers = dict(cluster._workers)
            admitted.append(cluster._admit(cluster._alive()))
            assert workers
            assert all(cluster._workers[address] is each for address, each in workers.items())

    upscale(film, tmp_path / "two.mkv", model="vsrt-s", executor=cluster, on_progress=admit_again)
    assert admitted
    assert (tmp_path / "two.mkv").read_bytes() == whole


def test_other_workers_are_refused_by_name_and_limited_ones_pin_all(
    film, processes, tmp_path, caplog
):
    preload = tmp_path / "older.py"
    preload.write_text("import vsrkit; vsrkit.__version__ = '0.0.1'")
    limits = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    joined = [
        processes.worker("older", "--no-nanny", "--preload", str(preload)),
        processes.worker("full", "--no-nanny", environment={"VSRKIT_CACHE": os.devnull}),
        processes.worker("limited", "--no-nanny", environment=limits),
    ]
    one, many = tmp_path / "one.mkv", tmp_path / "many.mkv"
    with connect(processes.address, same_bits=True) as executor:
        wait_for(lambda: len(executor._alive()) == 5)
        upscale(unseen(film), many, model="vsrt-s", executor=executor)
        assert executor.workers == 3
    for worker in joined:
        processes.kill(worker)
    # One process with the same limits, of which PyTorch learns when it is loaded.
    words = ["upscale", film, one, "-m", "vsrt-s", "--precision", "float32"]
    parts = "import vsrkit.upscale.produce as p; p.PART_FRAMES = 12; from vsrkit.cli import main"
    environment = os.environ | limits | {"MKL_CBWR": "COMPATIBLE"}
    command = [sys.executable, "-c", f"{parts}; main()", *words]
    subprocess.run(command, env=environment, check=True)
    assert many.read_bytes() == one.read_bytes()
    full, older = sorted({message for message in caplog.messages if "refused" in message})
    assert re.search(r"worker full \(tcp://\S+\) is refused: it cannot store the input", full)
    assert re.search(r"worker older \(tcp://\S+\) is refused: it has vsrkit 0.0.1, not", older)


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("tcp://127.0.0.1:1", "no scheduler answers at tcp://127.0.0.1:1"),
        ("http://127.0.0.1:8786", "write tcp://host:8786"),
        ("tls://127.0.0.1:8786", "needs a certificate: set DASK_DISTRIBUTED__COMM__TLS__CA_FILE"),
        ("nowhere.json", "no such scheduler file"),
        ("local:0", "write local:4"),
    ],
)
def test_a_wrong_address_is_explained_in_one_line(monkeypatch, address, line):
    monkeypatch.setattr("vsrkit.cluster.connect.CONNECT_S", 0.5)
    with pytest.raises(VsrkitError) as error, connect(address):
        pass
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_wrong_certificate_is_explained_in_one_line(tmp_path, content):
    path = tmp_path / "mine.pem"
    if content:
        path.write_text(content)
    files = {name: str(path) for name in ("ca-file", "client.cert", "client.key")}
    settings = {f"distributed.comm.tls.{name}": value for name, value in files.items()}
    with (
        import_module("dask").config.set(settings),
        pytest.raises(VsrkitError) as error,
        connect("tls://127.0.0.1:8786"),
    ):
        pass
    expected = "cannot load the certificate" if content else f"no such certificate file: {path}"
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_a_lost_scheduler_ends_the_job_and_one_process_resumes_it(
    film, whole, processes, tmp_path, monkeypatch
):
    monkeypatch.setattr("vsrkit.cluster.executor.LOST_S", 0.5)
    target = tmp_path / "out.mkv"

    def kill(progress):
        if progress.done >= 12 and progress.stage == "upscale" and alive():
            processes.kill(processes.scheduler)

    def alive():
        return processes.scheduler.poll() is None

    with (
        pytest.raises(VsrkitError, match="scheduler does not answer any more; finished parts are"),
        connect(processes.address) as executor,
    ):
        upscale(film, target, model="vsrt-s", executor=executor, on_progress=kill)
    assert upscale(film, target, model="vsrt-s").resumed >= 12
    assert target.read_bytes() == whole
    assert not WorkFolder.beside(target).path.exists()
