"""Parts on an executor: the same bytes in any order, failures, parts that depend on another."""

import pickle
import random
import sys
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest
import torch
from tests.clips import noise_picture, write_clip
from tests.upscale import upscaled

from vsrkit.errors import VsrkitError
from vsrkit.models.animesr import AnimeSR, AnimeSRConfig
from vsrkit.models.bicubic import Bicubic
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.spec import Carried, Window
from vsrkit.upscale import executors, produce
from vsrkit.upscale.executors import PartAnswer, PartQueue
from vsrkit.upscale.produce import plan_parts
from vsrkit.upscale.work_folder import WorkFolder


def upscale(source, target, **options):
    given = {"precision": "float32", "max_memory": "4G", **options}
    return upscaled.upscale(source, target, **given)


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    monkeypatch.setattr(produce, "PART_FRAMES", 12)


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Three shots of 20 frames; no cut is where a part begins."""
    pictures = [noise_picture(n // 20 * 1000 + n % 20, 24, 16, smooth=True) for n in range(60)]
    folder = tmp_path_factory.mktemp("film")
    return write_clip(folder / "in.mkv", width=24, height=16, pictures=pictures)


@pytest.fixture(params=["rrn", "animesr"])  # the latter looks one frame ahead
def recurrent(film, request):
    """A small recurrent model, and the video that one process makes with it."""
    torch.manual_seed(0)
    models = {
        "rrn": RRN(RRNConfig(channels=8, blocks=1)),
        "animesr": AnimeSR(AnimeSRConfig(channels=8, blocks=(2, 1, 1))),
    }
    model = models[request.param].eval()
    target = film.with_name(f"{request.param}.mkv")
    if not target.exists():
        upscale(film, target, model=model)
    return model, target.read_bytes()


class Shuffled(Executor):
    """Runs what was submitted within a moment in a random order, on copies of the tasks."""

    slots = 3

    def __init__(self, seed=0):
        self._order, self._waiting, self.calls = random.Random(seed), [], []

    def submit(self, fn, task):
        future = Future()
        self._waiting.append((future, fn, task))
        threading.Timer(0.02, self._run).start()
        return future

    def _run(self):
        waiting, self._waiting = self._waiting, []
        self._order.shuffle(waiting)
        for future, fn, task in waiting:
            self.calls.append(task)
            try:
                future.set_result(pickle.loads(pickle.dumps(fn(pickle.loads(pickle.dumps(task))))))
            except Exception as error:  # noqa: BLE001  as executors do
                future.set_exception(error)


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4", "frames"])
def test_the_order_of_parts_changes_no_byte(film, tmp_path, name):
    for folder, executor in (("one", None), ("many", Shuffled())):
        (tmp_path / folder).mkdir()
        upscale(film, tmp_path / folder / name, executor=executor)
    assert content(tmp_path / "many" / name) == content(tmp_path / "one" / name)
    assert [path.name for path in (tmp_path / "many").iterdir()] == [name]


def content(path):
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.iterdir()}
    return path.read_bytes()


def test_tasks_are_small_and_other_processes_load_the_model_by_name(film, tmp_path):
    upscale(film, tmp_path / "one.mkv", model="vsrt-s", end=1)
    sizes = []

    class Measured(ProcessPoolExecutor):
        def submit(self, fn, task):
            sizes.append(len(pickle.dumps(task)))
            return super().submit(fn, task)

    with Measured(1, mp_context=get_context("spawn")) as pool:
        upscale(film, tmp_path / "two.mkv", model="vsrt-s", end=1, executor=pool)
    assert (tmp_path / "two.mkv").read_bytes() == (tmp_path / "one.mkv").read_bytes()
    assert max(sizes) < 20_000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork by default")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12
def test_forked_processes_do_not_wait_for_threads_of_their_parent(film, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        upscale(film, tmp_path / "one.mkv", model="vsrt-s", end=1)
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            timer = threading.Timer(60, lambda: [p.kill() for p in pool._processes.values()])
            timer.start()
            upscale(film, tmp_path / "two.mkv", model="vsrt-s", end=1, executor=pool)
            timer.cancel()
    finally:
        torch.set_num_threads(before)
    assert (tmp_path / "two.mkv").read_bytes() == (tmp_path / "one.mkv").read_bytes()


@pytest.mark.parametrize("workers", ["shuffled", "threads", "processes"])
def test_a_recurrent_model_runs_shots_in_parallel(film, recurrent, tmp_path, workers):
    model, whole = recurrent
    target, shuffled = tmp_path / "two.mkv", Shuffled()
    if workers == "shuffled":
        upscale(film, target, model=model, executor=shuffled)
        # Parts 2 and 4 continue shots that began in the part before: they run again from there.
        leads = {task.part.number: len(task.part.lead) for task in shuffled.calls}
        assert leads == {0: 0, 1: 0, 2: 4, 3: 0, 4: 8}
    elif workers == "threads":
        with ThreadPoolExecutor(3) as threads:
            upscale(film, target, model=model, executor=threads)
    else:
        upscale(film, target, model=model, workers=2)
    assert target.read_bytes() == whole


def test_a_recurrent_model_continues_after_gaps_in_one_process(film, recurrent, tmp_path):
    model, whole = recurrent

    target = tmp_path / "two.mkv"

    def stop(progress):
        if progress.stage == "upscale" and progress.done >= 36:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        upscale(film, target, model=model, executor=Shuffled(), on_progress=stop)
    written = {path.name for path in WorkFolder.beside(target).path.glob("part-*.json")}
    assert len(written) == 3
    assert "part-000002.json" not in written or "part-000001.json" not in written
    assert upscale(film, target, model=model).resumed == 36
    assert target.read_bytes() == whole


def test_parts_of_a_shot_wait_for_the_part_before(tmp_path):
    folder = WorkFolder(tmp_path)
    parts = list(plan_parts([range(25), range(25, 60)], Carried(), frames=10))
    queue = PartQueue(parts, parts, Carried())
    first, state = queue.take(folder)
    assert (first.number, first.lead, state) == (0, (), None)
    # The second shot begins in part 2, so part 3 can run it again from there; all others wait.
    third, state = queue.take(folder)
    assert (third.number, len(third.lead), state) == (3, 5, None)
    assert queue.take(folder) is None
    folder.write_file(parts[0].state_file, [b"state"])
    second, state = queue.take(folder)
    assert (second.number, second.lead, state) == (1, (), b"state")
    assert queue.take(folder) is None
    queue.put_back(third)
    assert queue.take(folder)[0].number == 3


def test_parts_of_other_models_wait_for_nothing(tmp_path):
    parts = list(plan_parts([range(50)], Window(5), frames=10))
    queue = PartQueue(parts, parts, Window(5))
    assert [queue.take(WorkFolder(tmp_path))[0].number for _ in parts] == [0, 1, 2, 3, 4]
    assert queue.take(WorkFolder(tmp_path)) is None


def test_a_part_that_fails_twice_is_computed_again(film, tmp_path, monkeypatch, caplog):
    upscale(film, tmp_path / "one.mkv")
    left = fail_at(monkeypatch, part=2, times=2)
    upscale(film, tmp_path / "two.mkv", executor=Shuffled())
    assert left == []
    assert (tmp_path / "two.mkv").read_bytes() == (tmp_path / "one.mkv").read_bytes()
    said = [m for m in caplog.messages if "computed again" in m]
    assert said == ["part 2 (frames 24 to 35) failed and is computed again: out of luck"] * 2


def test_a_part_that_fails_three_times_ends_the_job_and_keeps_the_others(
    film, tmp_path, monkeypatch
):
    upscale(film, tmp_path / "one.mkv")
    target = tmp_path / "two.mkv"
    with monkeypatch.context() as patch:
        fail_at(patch, part=2, times=3)
        wanted = r"part 2 \(frames 24 to 35\) failed 3 times: out of luck; the other .* kept"
        with pytest.raises(VsrkitError, match=wanted):
            upscale(film, target, executor=Shuffled())
    assert upscale(film, target).resumed >= 24
    assert target.read_bytes() == (tmp_path / "one.mkv").read_bytes()


def fail_at(monkeypatch, part, times):
    plain, left = executors.run_part, list(range(times))

    def run(task):
        if task.part.number == part and left:
            left.pop()
            raise RuntimeError("out of luck")
        return plain(task)

    # The task is pickled, and a local function cannot be.
    monkeypatch.setattr(executors, "run_part", run)
    return left


def test_a_smaller_tile_of_a_worker_is_used_by_all_that_follow(film, tmp_path, monkeypatch, caplog):
    source = write_clip(tmp_path / "in.mkv", width=200, height=160, frames=30)
    plain = Bicubic.forward

    def forward(self, clip, keep=None):
        if max(clip.shape[-2:]) > 64:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
        return plain(self, clip, keep)

    monkeypatch.setattr(Bicubic, "forward", forward)
    executor = Shuffled()
    executor.slots = 1
    upscale(source, tmp_path / "out.mkv", executor=executor)
    assert [task.engine.tile for task in executor.calls] == [None, 64, 64]
    assert sum("tiles of 64 pixels" in message for message in caplog.messages) == 1


def test_the_files_of_an_answer_end_with_the_record(film, recurrent, tmp_path):
    """The files of a part must exist when its record does."""
    executor, answers = Shuffled(), []
    submit = executor.submit

    def spy(fn, task):
        return submit(lambda task: answers.append(fn(task)) or answers[-1], task)

    executor.submit = spy
    upscale(film, tmp_path / "out.mkv", model=recurrent[0], end=1, executor=executor)
    names = [[name for name, _ in answer.files] for answer in answers]
    assert ["state-000000.safetensors", "part-000000", "part-000000.json"] in names
    assert all(isinstance(answer, PartAnswer) for answer in answers)


def test_a_worker_with_other_weights_says_so(film, tmp_path):
    class Wrong(Shuffled):
        def submit(self, fn, task):
            return super().submit(
                fn, replace(task, engine=replace(task.engine, digest="0123456789abcdef"))
            )

    with pytest.raises(
        VsrkitError, match=r"weights of vsrt-s differ .* instead of 0123456789abcdef"
    ):
        upscale(film, tmp_path / "out.mkv", model="vsrt-s", end=1, executor=Wrong())
