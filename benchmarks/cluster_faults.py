"""Kill workers, clients and the scheduler of a cluster during one job, and compare the bytes.

Run: python benchmarks/cluster_faults.py [--kills 20] [--frames 3000]

Workers are killed with SIGKILL at random moments, each time another one joins; the client is killed
twice and the scheduler once, after which the same command goes on. The output must have the bytes
of a run in one process, and nothing may be left behind. Prints a line for each fault and writes
benchmarks/results/cluster_faults.json.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av
import numpy as np
import psutil

RESULTS = Path(__file__).parent / "results" / "cluster_faults.json"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def write_film(path: Path, frames: int) -> None:
    """A drifting texture with a cut every 170 frames, 48x32."""
    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=25, options={"crf": "20"})
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for number in range(frames):
            if number % 170 == 0:
                scene = rng.integers(0, 255, (64, 96, 3), dtype=np.uint8)
            y, x = number % 16, number % 24
            picture = av.VideoFrame.from_ndarray(scene[y : y + 32, x : x + 48].copy(), "rgb24")
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self.workers = folder, 0, []
        self.start_scheduler()

    def start_scheduler(self, port: str = "0") -> None:
        log = self.folder / f"scheduler-{self.number}.log"
        self.number += 1
        self.scheduler = self._start(
            log, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port
        )
        while not (match := re.search(r"Scheduler at:\s+(tcp://\S+)", log.read_text())):
            time.sleep(0.1)
        self.address = match[1]

    def add_worker(self) -> None:
        """A worker without a nanny, so that a killed one does not come back by itself."""
        self.number += 1
        place = self.folder / f"worker-{self.number}"
        place.mkdir()
        self.workers.append(
            self._start(
                place / "log",
                "distributed.cli.dask_worker",
                self.address,
                "--no-nanny",
                "--nthreads",
                "1",
                "--local-directory",
                str(place),
                VSRKIT_CACHE=str(self.folder / f"cache-{len(self.workers) % 2}"),
            )
        )

    def _start(self, log: Path, module: str, *words: str, **variables: str) -> subprocess.Popen:
        with log.open("w") as out:
            return subprocess.Popen(
                [sys.executable, "-m", module, "--no-dashboard", *words],
                env=ENVIRONMENT | variables, cwd=log.parent, stdout=out, stderr=out,
            )  # fmt: skip

    def kill_worker(self, rng: random.Random) -> None:
        victim = self.workers.pop(rng.randrange(len(self.workers)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()

    def close(self) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()


def start_client(source: str, target: Path, address: str, log: Path) -> subprocess.Popen:
    words = ["upscale", source, str(target), "-m", "vsrt-s", "--precision", "float32"]
    with log.open("a") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "vsrkit", *words, "--cluster", address, "--json-progress"],
            env=ENVIRONMENT, cwd=target.parent, stdout=out, stderr=out,
        )  # fmt: skip


def frames_done(log: Path) -> int:
    found = re.findall(r'"stage": "upscale", "done": (\d+)', log.read_text())
    return int(found[-1]) if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--frames", type=int, default=1500)
    parser.add_argument("--interval", type=float, default=8, help="mean seconds between kills")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(folder, options, rng)


def run(folder: Path, options: argparse.Namespace, rng: random.Random) -> None:
    film, whole, target = folder / "film.mkv", folder / "whole.mkv", folder / "out" / "film.mkv"
    target.parent.mkdir()
    write_film(film, options.frames)
    words = ["upscale", str(film), str(whole), "-m", "vsrt-s", "--precision", "float32"]
    subprocess.run([sys.executable, "-m", "vsrkit", *words], env=ENVIRONMENT, check=True)
    print(f"one process: {whole.stat().st_size} bytes", flush=True)

    before = {process.pid for process in psutil.process_iter()}
    cluster, log = Cluster(folder), folder / "client.log"
    for _ in range(2):
        cluster.add_worker()
    # The workers have another current folder and do not find this path: the film is sent.
    source = "/proc/self/cwd/../film.mkv"
    client = start_client(source, target, cluster.address, log)
    faults = {"workers": 0, "clients": 0, "schedulers": 0, "joined": 2}
    done = 0
    plan = sorted([options.frames // 3, 2 * options.frames // 3]), options.frames // 2
    while client.poll() is None or client.returncode != 0:
        if client.poll() is not None:  # the scheduler was lost: the same command goes on
            print("  ", log.read_text().splitlines()[-1][:160], flush=True)
            client = start_client(source, target, cluster.address, log)
        # A killed worker needs time to be replaced, or none would ever finish a part.
        wait_until = time.monotonic() + 4 * options.interval
        while frames_done(log) == done and client.poll() is None and time.monotonic() < wait_until:
            time.sleep(0.2)
        time.sleep(rng.uniform(0, 2 * options.interval))
        done = frames_done(log)
        if faults["workers"] < options.kills and done:
            cluster.kill_worker(rng)
            cluster.add_worker()
            faults["workers"] += 1
            faults["joined"] += 1
            print(f"{done} frames: worker killed, another joins", flush=True)
        if faults["clients"] < 2 and done >= plan[0][faults["clients"]]:
            client.kill()
            client.wait()
            client = start_client(source, target, cluster.address, log)
            faults["clients"] += 1
            print(f"{done} frames: client killed", flush=True)
        if faults["schedulers"] < 1 and done >= plan[1]:
            cluster.scheduler.kill()
            cluster.scheduler.wait()
            for worker in cluster.workers:
                worker.kill()
                worker.wait()
            cluster.workers.clear()
            faults["schedulers"] += 1
            print(f"{done} frames: scheduler killed", flush=True)
            client.wait()
            cluster.start_scheduler()
            for _ in range(2):
                cluster.add_worker()
    same = target.read_bytes() == whole.read_bytes()
    left = sorted(path.name for path in target.parent.iterdir() if path != target)
    partial = [str(path) for path in folder.glob("cache-*/**/*.part")]
    cluster.close()
    time.sleep(3)
    processes = [p.pid for p in psutil.process_iter() if p.pid not in before and mine(p, folder)]
    result = {
        **faults,
        "frames": options.frames,
        "same bytes": same,
        "files left in the output folder": left,
        "partial files left on workers": partial,
        "processes left": len(processes),
    }
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    assert same
    assert left == partial == processes == []


def mine(process: psutil.Process, folder: Path) -> bool:
    """Whether a process works in the folder of this script."""
    try:
        return str(folder) in process.cwd() or str(folder) in " ".join(process.cmdline())
    except psutil.Error:
        return False


if __name__ == "__main__":
    main()
