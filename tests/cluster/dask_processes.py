"""A scheduler and workers of Dask as processes, with cache folders of their own."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

# Event loops that wake up 50 times a second would take much of the time of the tests.
QUIET = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
}


class Processes:
    def __init__(self, folder: Path):
        self.folder, self._started = folder, []
        self.scheduler = self._start(
            "distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1"
        )
        self.address = self._wait_for(self.scheduler, r"Scheduler at:\s+(tcp://\S+)")

    def worker(self, name, *words, environment=None):
        """Start a worker with one thread; its input cannot be found at the path of the client."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        return self._start(
            "distributed.cli.dask_worker", self.address, "--nthreads", "1", "--name", name,
            "--local-directory", str(place), *words,
            environment={"VSRKIT_CACHE": str(place / "cache"), **(environment or {})},
        )  # fmt: skip

    def _start(self, module, *words, environment=None):
        log = self.folder / f"{module}-{len(self._started)}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", module, "--no-dashboard", *words],
                env=os.environ | QUIET | {"PYTHONPATH": os.pathsep.join(sys.path)}
                | (environment or {}),
                cwd=self.folder, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        process.log = log
        self._started.append(process)
        return process

    def _wait_for(self, process, pattern, seconds=60):
        for _ in range(seconds * 10):
            if match := re.search(pattern, process.log.read_text()):
                return match[1]
            assert process.poll() is None, process.log.read_text()
            time.sleep(0.1)
        raise AssertionError(process.log.read_text())

    def kill(self, process):
        """SIGKILL for a process and its children."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self):
        for process in self._started:
            if process.poll() is None:
                self.kill(process)
