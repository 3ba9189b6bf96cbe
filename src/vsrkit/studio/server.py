"""Run the application: the socket, deadlines of connections, the address with a token."""

import asyncio
import ipaddress
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM

import uvicorn
from filelock import FileLock, Timeout
from uvicorn.protocols.http.h11_impl import H11Protocol

from vsrkit.errors import UsageError, VsrkitError
from vsrkit.hardware.files import cache_directory, write_atomically
from vsrkit.studio.app import Settings, Studio
from vsrkit.studio.auth import HOST, LOOPBACK, SignIn
from vsrkit.studio.folders import open_folders
from vsrkit.studio.models import Models
from vsrkit.studio.options import OptionTable
from vsrkit.studio.state_folder import StateFolder

FIRST_PORT, PORTS = 8686, 20
MOST_CONNECTIONS = 512
WAITING = 512  # connections that the system accepts before the server does
REQUEST_S = 20.0  # seconds in which the head of a request must arrive
END_S = 2  # seconds that open requests get when the server ends


class Server(uvicorn.Server):
    """Ends the streams of events first when it is stopped; they would otherwise stay open."""

    def __init__(self, config: uvicorn.Config, studio: Studio) -> None:
        super().__init__(config)
        self._studio = studio

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn, do not die of the signal afterwards: there is more to clean up."""
        before = {name: signal.signal(name, self.handle_exit) for name in (SIGINT, SIGTERM)}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._studio.events.close()
        await super().shutdown(sockets)


class Connection(H11Protocol):
    """Closes connections on which no whole request arrives; uvicorn waits for it for ever."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline:
            self._deadline.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(REQUEST_S, self._check, self.cycle)

    def _check(self, last: object) -> None:
        if self.cycle is last:
            self.transport.close()


def serve(
    folders: Sequence[Path],
    *,
    options: Callable[[Models], OptionTable],
    host: str,
    port: int | None,
    allowed_hosts: Sequence[str],
    max_upload: int,
    cluster: str | None,
    on_ready: Callable[[str], None],
) -> None:
    """Run the server until it is interrupted.

    folders: with videos; the first one receives uploads and the state of the server.
    options: makes the table of options for the models that can be used.
    host: address to listen on.
    port: number, or None for the first free one.
    allowed_hosts: names by which the server may be reached, besides those of this machine itself.
    max_upload: bytes of the largest upload.
    cluster: address of a Dask cluster for the jobs.
    on_ready: called with the address to open, which contains a one-time token.
    """
    hosts = tuple(dict.fromkeys([*map(_host_name, allowed_hosts), *LOOPBACK]))
    if not _is_loopback(host) and not allowed_hosts:
        raise UsageError(
            f"--host {host} can be reached by other machines; name the server with --allow-host, "
            "such as --allow-host studio.local"
        )
    opened = open_folders(folders)
    state = StateFolder.of(opened[0].path)
    with state.locked(), _listen(host, port) as listening:
        number = listening.getsockname()[1]
        settings = Settings(
            folders=opened,
            hosts=hosts,
            cookie=f"vsrkit-studio-{number}",
            max_upload=max_upload,
            cluster=cluster,
        )
        studio = Studio(settings, options, state)
        address = f"http://{hosts[0]}:{number}"
        note = _note(number)
        write_atomically(note, json.dumps({"state": os.fspath(state.path), "address": address}))
        config = uvicorn.Config(
            studio.application(),
            http=Connection,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            backlog=WAITING,
            timeout_graceful_shutdown=END_S,
        )
        try:
            on_ready(_login(address, studio.sign_in.new_token()))
            Server(config, studio).run(sockets=[listening])
        finally:
            note.unlink(missing_ok=True)


def addresses() -> Iterator[str]:
    """New addresses with one-time tokens of the servers that this user runs on this machine."""
    for note in sorted(_note(0).parent.glob("*.json")):
        try:
            found = json.loads(note.read_text(encoding="utf-8"))
            state = StateFolder(Path(found["state"]))
            with FileLock(state.path / "lock", timeout=0):
                note.unlink(missing_ok=True)  # of a server that was killed
        except Timeout:
            database = state.open_database()
            yield _login(found["address"], SignIn(database).new_token())
            database.close()
        except (OSError, ValueError, KeyError):
            continue


def _login(address: str, token: str) -> str:
    return f"{address}/login?token={token}"


def _note(port: int) -> Path:
    """File that says where the server on a port keeps its state."""
    return cache_directory() / "studio" / f"{port}.json"


def _host_name(name: str) -> str:
    match = HOST.fullmatch(name.lower())
    if match is None or match[1] != name.lower():
        raise UsageError(
            f"--allow-host {name} is not a name; write it as in the browser's address bar, without "
            "http:// and port"
        )
    return match[1]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    numbers = range(FIRST_PORT, FIRST_PORT + PORTS) if port is None else [port]
    for number in numbers:
        try:
            return socket.create_server((host, number), family=family, backlog=WAITING)
        except OSError as error:
            reason = error.strerror or str(error)
    raise VsrkitError(
        f"cannot listen on {host}, port {numbers[-1]}: {reason}; choose another --port"
    )
