"""Connect to a Dask cluster by its address, with one line about what is wrong if that fails."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from vsrkit.cluster.executor import DaskExecutor
from vsrkit.errors import UsageError, VsrkitError

CONNECT_S = 10.0  # seconds to wait for the scheduler


@contextmanager
def connect(address: str, *, same_bits: bool = False) -> Iterator[DaskExecutor]:
    """Connect to a cluster.

    address: `tcp://host:8786` or `tls://host:8786` of a scheduler, the path of a scheduler file, or
        `local:4` to start four workers on this machine.
    same_bits: as for `DaskExecutor`.
    """
    try:
        import distributed  # noqa: PLC0415  not in the core
    except ImportError as error:
        raise UsageError("--cluster needs Dask: pip install 'vsrkit[cluster]'") from error
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what matters is said by this package
    try:
        with (
            _local_cluster(distributed, address) as scheduler,
            _client(distributed, scheduler) as client,
        ):
            executor = DaskExecutor(client, same_bits=same_bits)
            try:
                yield executor
            finally:
                executor.shutdown()
    finally:
        logger.setLevel(level)


@contextmanager
def _local_cluster(distributed: Any, address: str) -> Iterator[Any]:
    """Start the workers of `local:N`; other addresses are passed on."""
    kind, _, number = address.partition(":")
    if kind != "local":
        yield address
        return
    if not number.isdigit() or int(number) < 1:
        raise UsageError(f"--cluster {address}: write local:4 for four workers on this machine")
    # Dask's profilers, and event loops that wake up 50 times a second in every process, would take
    # a few percent of the cores that the parts need.
    quiet = {
        "distributed.worker.profile.enabled": False,
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.tick.interval": "1s",
    }
    with (
        import_module("dask").config.set(quiet),
        distributed.LocalCluster(
            n_workers=int(number),
            threads_per_worker=1,
            dashboard_address=":0",  # any free port
            silence_logs=logging.CRITICAL,
            memory_limit=0,  # the job keeps to its own limit
        ) as cluster,
    ):
        yield cluster


@contextmanager
def _client(distributed: Any, scheduler: Any) -> Iterator[Any]:
    options: dict[str, Any] = {"address": scheduler}
    if isinstance(scheduler, str) and "://" in scheduler:
        _check_address(distributed, scheduler)
    elif isinstance(scheduler, str):
        if not Path(scheduler).is_file():  # Dask would wait for it
            raise UsageError(
                f"--cluster {scheduler}: no such scheduler file; write tcp://host:8786, the path "
                "of a scheduler file, or local:4"
            )
        options = {"scheduler_file": scheduler}
    try:
        client = distributed.Client(**options, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        text = " ".join(str(error).split())
        raise VsrkitError(f"no scheduler answers at {scheduler}: {text}") from error
    with client:
        yield client


def _check_address(distributed: Any, address: str) -> None:
    """Raise UsageError for an address that cannot work; a client of Dask would hang."""
    scheme, _, place = address.partition("://")
    if scheme not in ("tcp", "tls", "ws", "wss", "ucx") or ":" not in place:
        raise UsageError(f"--cluster {address}: write tcp://host:8786 or tls://host:8786")
    if scheme != "tls":
        return
    security = distributed.Security()
    for path in (security.tls_ca_file, security.tls_client_cert, security.tls_client_key):
        if path and "\n" not in path and not Path(path).is_file():  # else it is a certificate
            raise UsageError(f"--cluster {address}: no such certificate file: {path}")
    try:
        secured = security.get_connection_args("client").get("ssl_context")
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"--cluster {address}: cannot load the certificate: {error}") from error
    if secured is None:
        raise UsageError(
            f"--cluster {address} needs a certificate: set "
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and "
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY, see docs/cluster.md"
        )
