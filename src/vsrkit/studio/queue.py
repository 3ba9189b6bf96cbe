"""The queue: which jobs there are, which one runs, and what may be done with each."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from vsrkit.errors import VsrkitError
from vsrkit.hardware.files import write_atomically
from vsrkit.studio.errors import RequestError, UnknownError
from vsrkit.studio.events import Events
from vsrkit.studio.folders import Folder, folder_of
from vsrkit.studio.job import AT_WORK, Job
from vsrkit.studio.process import JobProcess, kill_leftovers
from vsrkit.studio.state_folder import StateFolder

log = logging.getLogger("vsrkit")

EVENT_S = 0.5  # seconds between events about the progress of a job
AGAIN_S = 10.0  # seconds until the queue goes on after its disk was full or gone
MOST_JOBS = 5000


class Queue:
    """Jobs in an order, of which one runs at a time; every change is in the database at once."""

    def __init__(
        self,
        state: StateFolder,
        database: sqlite3.Connection,
        events: Events,
        folders: Sequence[Folder],
        describe: Callable[[Job], dict[str, Any]],
    ) -> None:
        """Read the queue; jobs that ran when the server ended continue.

        state: has the folder of each job.
        database: has the jobs.
        events: get every change.
        folders: in which sources and outputs must be.
        describe: a job as pages see it.
        """
        self._state, self._database, self._events = state, database, events
        self._folders, self.describe = folders, describe
        rows = database.execute("SELECT value FROM jobs ORDER BY position, id").fetchall()
        jobs = [Job.load(text) for (text,) in rows]
        self._jobs = {job.id: job for job in jobs}  # in their order
        paused = database.execute("SELECT paused FROM queue").fetchone()
        self.paused = bool(paused and paused[0])
        self._process: JobProcess | None = None
        self._wake = asyncio.Event()
        self._wake.set()
        self._last_event = 0.0
        self.on_done: Callable[[Job], None] = lambda _: None

    @property
    def jobs(self) -> list[Job]:
        """All jobs in their order."""
        return list(self._jobs.values())

    @property
    def order(self) -> list[str]:
        """The jobs that are not finished, in the order in which they run."""
        return [job.id for job in self.jobs if not job.is_finished]

    def as_json(self) -> dict[str, Any]:
        """The state of the queue."""
        return {"paused": self.paused, "order": self.order}

    def job(self, number: str) -> Job:
        """A job by its id."""
        if number not in self._jobs:
            raise UnknownError("job")
        return self._jobs[number]

    def new_number(self) -> str:
        """The id of the next job."""
        row = self._database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'")
        used = row.fetchone()
        return str(max([used[0] if used else 0, *map(int, self._jobs)]) + 1)

    def add(self, job: Job) -> None:
        """Append a job."""
        if len(self._jobs) >= MOST_JOBS:
            raise RequestError(409, f"the queue has {MOST_JOBS} jobs; remove some that are done")
        self._database.execute(
            "INSERT INTO jobs VALUES (?, ?, ?)", [int(job.id), float(job.id), job.dump()]
        )
        self._jobs[job.id] = job
        self.publish(job)
        self._publish_queue()
        self._wake.set()

    def change(self, job: Job) -> Job:
        """Replace a job that does not run by one with other options or another output."""
        self._require(job.id, "changed", "queued", "failed", "cancelled")
        before = self.job(job.id)
        if before.state == "queued" and before.started is not None:
            raise RequestError(409, "this job has begun; cancel it to change it")
        _discard_work(before)
        return self._set(replace(job, error=None, progress=None))

    def pause(self, number: str, *, now: bool) -> Job:
        """Stop a job after its current part, or at once."""
        job = self._require(number, "paused", "queued", "running", "pausing")
        if job.state == "queued":
            return self._set(replace(job, state="paused"))
        return self._stop(job, "paused", now=now)

    def resume(self, number: str) -> Job:
        """Put a paused job back into the queue."""
        job = self._require(number, "resumed", "paused", "pausing")
        if job.state == "pausing":
            return self._set(replace(job, then="queued"))
        return self._set(replace(job, state="queued"))

    def cancel(self, number: str) -> Job:
        """Stop a job and discard its finished parts."""
        job = self._require(number, "cancelled", "queued", "running", "pausing", "paused")
        if job.state in AT_WORK:
            return self._stop(job, "cancelled", now=True)
        _discard_work(job)
        return self._set(replace(job, state="cancelled", finished=time.time()))

    def retry(self, number: str) -> Job:
        """Put a failed or cancelled job back into the queue, at its end."""
        job = self._require(number, "tried again", "failed", "cancelled")
        self._jobs[number] = self._jobs.pop(number)
        self._store_order()
        begun = None if job.state == "cancelled" else job.started
        again = replace(job, state="queued", started=begun, finished=None)
        return self._set(replace(again, error=None, progress=None))

    def remove(self, number: str) -> None:
        """Forget a finished job; its result stays, what it left unfinished does not."""
        job = self._require(number, "removed", "done", "failed", "cancelled")
        if job.state != "done":
            _discard_work(job)
        del self._jobs[number]
        self._database.execute("DELETE FROM jobs WHERE id = ?", [int(number)])
        self._state.remove_job(number)
        self._events.publish("job-removed", {"id": number}, number)

    def clear(self) -> list[str]:
        """Remove all jobs that are done or cancelled."""
        removed = [job.id for job in self.jobs if job.state in ("done", "cancelled")]
        for number in removed:
            self.remove(number)
        return removed

    def reorder(self, numbers: Sequence[str]) -> None:
        """Let these jobs come first, in this order; the other unfinished ones follow."""
        if unknown := set(numbers) - set(self.order):
            raise RequestError(409, f"job {min(unknown)} is not in the queue")
        if len(set(numbers)) < len(numbers):
            raise RequestError(400, "a job is twice in the order")
        rest = [number for number in self._jobs if number not in numbers]
        self._jobs = {number: self._jobs[number] for number in (*numbers, *rest)}
        self._store_order()
        self._publish_queue()

    def set_paused(self, paused: bool) -> None:
        """Pause the queue, with the running job, or resume it."""
        self.paused = paused
        self._database.execute("DELETE FROM queue")
        self._database.execute("INSERT INTO queue VALUES (?)", [paused])
        for job in self.jobs:
            if paused and job.state == "running":
                self._stop(job, "queued", now=False)
        self._publish_queue()
        self._wake.set()

    async def run(self) -> None:
        """Run the jobs, for ever; when cancelled, stop the one that runs so that it can resume."""
        await self._recover()
        while True:
            job = next((job for job in self.jobs if job.state == "queued"), None)
            if job is None or self.paused:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._run(job)
            except (OSError, sqlite3.Error) as error:
                log.warning("the queue cannot write its state: %s; it tries again", error)
                await asyncio.sleep(AGAIN_S)

    async def _recover(self) -> None:
        """Settle the jobs that were at work when the server ended."""
        at_work = [job for job in self.jobs if job.state in AT_WORK]
        await asyncio.to_thread(kill_leftovers, [job for job in self.jobs if not job.is_finished])
        for job in at_work:
            self._settle(job, job.then or "queued")

    async def _run(self, job: Job) -> None:
        if reason := self._refusal(job):
            self._set(replace(job, state="failed", error=reason, finished=time.time()))
            return
        if job.is_complete:  # only its report is missing, or the server ended just before this
            self._settle(job, "done")
            return
        job = self._set(
            replace(job, state="running", started=time.time(), finished=None, error=None)
        )
        try:
            self._process = await JobProcess.start(job, self._state.job(job.id))
            code = await self._process.follow(partial(self._on_progress, job.id))
        except OSError as error:
            text = f"the job cannot be started: {error.strerror or error}"
            self._set(replace(job, state="failed", error=text, finished=time.time()))
            return
        except asyncio.CancelledError:
            if self._process:
                await self._process.stop()
            raise
        process, self._process = self._process, None
        job = self.job(job.id)
        if code == 0 or job.then is not None:
            self._settle(job, job.then or "queued", done=code == 0)
        else:
            line = process.error(code)
            self._set(replace(job, state="failed", error=line, finished=time.time()))

    def _refusal(self, job: Job) -> str | None:
        """Why a job must not run: a file outside of the folders."""
        inside = all(folder_of(path, self._folders) for path in (job.source, job.output))
        return None if inside else "its files are not in the folders that this server was given"

    def _settle(self, job: Job, state: Any, *, done: bool = False) -> None:
        """Set the state of a job whose process has ended or is gone."""
        finished = None
        if done or job.is_complete:
            state, finished = "done", time.time()
        elif state == "cancelled":
            with suppress(RequestError):
                _discard_work(job)
            finished = time.time()
        self._set(replace(job, state=state, then=None, finished=finished))
        if state == "done":
            self.on_done(job)

    def _on_progress(self, number: str, progress: dict[str, Any]) -> None:
        job, now = self.job(number), time.monotonic()
        new_stage = (job.progress or {}).get("stage") != progress.get("stage")
        memory = self._process.memory if self._process else None
        self._jobs[number] = replace(job, progress=progress, memory=memory)
        if new_stage:
            self._keep_manifest(job)
        if new_stage or now - self._last_event >= EVENT_S:
            self._last_event = now
            self.publish(self._jobs[number])

    def _keep_manifest(self, job: Job) -> None:
        """Copy what the scan found: it names the frames of the result when the job is done."""
        with suppress(OSError):  # not there yet, or no room; watching then scans the source
            content = job.work_folder.manifest.read_bytes()
            write_atomically(self._state.manifest(job.id), content)

    def _stop(self, job: Job, then: Any, *, now: bool) -> Job:
        if self._process:
            self._process.interrupt(now=now)
        return self._set(replace(job, state="pausing", then=then))

    def _require(self, number: str, what: str, *states: str) -> Job:
        job = self.job(number)
        if job.state not in states:
            raise RequestError(409, f"a job that is {job.state} cannot be {what}")
        return job

    def _set(self, job: Job) -> Job:
        """Store a job and tell everyone."""
        self._jobs[job.id] = job
        self._database.execute("UPDATE jobs SET value = ? WHERE id = ?", [job.dump(), int(job.id)])
        self.publish(job)
        self._publish_queue()
        self._wake.set()
        return job

    def _store_order(self) -> None:
        self._database.executemany(
            "UPDATE jobs SET position = ? WHERE id = ?",
            [(place, int(number)) for place, number in enumerate(self._jobs)],
        )

    def publish(self, job: Job) -> None:
        """Tell everyone about a job."""
        self._events.publish("job", self.describe(job), job.id)

    def _publish_queue(self) -> None:
        self._events.publish("queue", self.as_json())


def _discard_work(job: Job) -> None:
    """Delete the finished parts of a job that does not run."""
    folder = job.work_folder
    if job.started is None or not folder.path.is_dir():
        return
    try:
        with folder.locked():
            folder.clear()
    except VsrkitError as error:  # a terminal has taken the job over
        raise RequestError(409, str(error)) from error
