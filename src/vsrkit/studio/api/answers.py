"""Answers in JSON, files, and reading the JSON of requests."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response

from vsrkit.studio.errors import RequestError

LARGEST_BODY = 1 << 20  # bytes of JSON
BODY_S = 30.0  # seconds in which it must arrive
LONGEST_NUMBER = 16  # digits


class Json(Response):
    """A value as JSON; text that is no valid Unicode, as in names of files, is escaped."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode("ascii")


def refuse(status: int, message: str, **more: object) -> Json:
    """An answer about an error."""
    return Json({"error": message, **more}, status)


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request; an empty body is an empty object."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_BODY:
                    raise RequestError(413, f"the request is larger than {LARGEST_BODY} bytes")
    except TimeoutError as error:
        raise RequestError(400, "the request did not arrive in time") from error
    except ClientDisconnect as error:
        raise RequestError(400, "the request did not arrive as a whole") from error
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the request is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError(400, "the request must be a JSON object")
    return value


def known(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """The values of a request; an error if there are others."""
    if unknown := sorted(values.keys() - set(names)):
        raise RequestError(400, f"unknown {unknown[0]!r}; known are {', '.join(names)}")
    return values


def text_of(values: dict[str, Any], name: str) -> str:
    """A text among the values of a request."""
    value = values.get(name)
    if not isinstance(value, str):
        raise RequestError(400, f"{name} must be a text")
    return value


def number_of(text: str, name: str) -> float:
    """A number in the query of a request."""
    try:
        value = float(text)
    except ValueError as error:
        raise RequestError(400, f"{name} is not a number") from error
    if not abs(value) < 1e9:
        raise RequestError(400, f"{name} is out of range")
    return value


def whole_number(text: str, name: str) -> int:
    """A whole number in the address of a request."""
    if not (text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER):
        raise RequestError(400, f"{name} must be a whole number")
    return int(text)


def shown(path: Path | str) -> str:
    """A path or name as text for people: bytes that are no UTF-8 are replaced."""
    return os.fsencode(path).decode(errors="replace")


def file_answer(path: Path, kind: str, *, download: str | None = None) -> Response:
    """A file; ranges are supported.

    path: of a regular file.
    kind: MIME type.
    download: name under which the browser stores it, in place of showing it.
    """
    if not path.is_file():
        raise RequestError(404, "the file does not exist any more")
    headers = {"Cache-Control": "private, no-cache"}
    if download is not None:
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(download, safe='')}"
    return FileResponse(path, media_type=kind, headers=headers, stat_result=path.stat())


def video_answer(path: Path) -> Response:
    """A file for `<video>`; the browser must not guess another type."""
    return file_answer(path, "video/webm" if path.suffix == ".webm" else "video/mp4")


def picture(content: bytes, kind: str, **headers: str) -> Response:
    """A picture that was made for this request.

    content: of the file.
    kind: `png` or `jpeg`.
    headers: further ones.
    """
    return Response(
        content,
        media_type=f"image/{kind}",
        headers={"Cache-Control": "private, max-age=3600"} | headers,
    )
