"""Uploads: declared, sent in raw requests, discarded."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from vsrkit.studio.api.answers import Json, known, read_json, text_of, whole_number
from vsrkit.studio.errors import RequestError
from vsrkit.studio.library import Library
from vsrkit.studio.uploads import Uploads

LONGEST_KEY = 1000  # characters
QUIET_S = 60.0  # seconds without a byte after which a request is ended


class UploadsApi:
    """The requests below /api/uploads."""

    def __init__(self, uploads: Uploads, library: Library) -> None:
        self._uploads, self._library = uploads, library
        self.routes = [
            Route("/api/uploads", self.list_uploads, methods=["GET"]),
            Route("/api/uploads", self.declare, methods=["POST"]),
            Route("/api/uploads/{id}", self.upload, methods=["GET"]),
            Route("/api/uploads/{id}", self.write, methods=["PUT"]),
            Route("/api/uploads/{id}", self.discard, methods=["DELETE"]),
        ]

    async def list_uploads(self, request: Request) -> Response:
        return Json({"uploads": [upload.as_json() for upload in self._uploads.unfinished()]})

    async def declare(self, request: Request) -> Response:
        values = known(await read_json(request), "name", "size", "key")
        size, key = values.get("size"), values.get("key")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise RequestError(400, "size is the number of bytes of the file")
        if size == 0:
            raise RequestError(400, "the file is empty")
        if key is not None and not _is_key(key):
            raise RequestError(400, f"key is a line of at most {LONGEST_KEY} characters")
        return Json(self._uploads.declare(text_of(values, "name"), size, key).as_json(), 201)

    async def upload(self, request: Request) -> Response:
        return Json(self._uploads.upload(request.path_params["id"]).as_json())

    async def write(self, request: Request) -> Response:
        offset = whole_number(request.query_params.get("offset", "0"), "offset")
        length = request.headers.get("content-length")
        upload = await self._uploads.write(
            request.path_params["id"],
            offset,
            None if length is None else int(length),
            _chunks(request),
        )
        if upload.video is not None:
            await self._library.refresh()
        return Json(upload.as_json())

    async def discard(self, request: Request) -> Response:
        await self._uploads.discard(request.path_params["id"])
        return Response(status_code=204)


def _is_key(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_KEY


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    """The body of a request; an error if it is interrupted."""
    chunks = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(QUIET_S):
                chunk = await anext(chunks, None)
        except TimeoutError as error:
            raise RequestError(400, "no bytes arrived for a while; send the rest again") from error
        except ClientDisconnect as error:
            raise RequestError(400, "the connection ended; send the rest again") from error
        if chunk is None:
            return
        yield chunk
