"""Who may use the server: one-time tokens, cookies, Host names, requests of other sites."""

import re
import secrets
import sqlite3
import time
from hashlib import sha256
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vsrkit.studio.api.answers import refuse

DAY = 24 * 3600.0  # seconds
TOKEN_AGE, SESSION_AGE = DAY, 30 * DAY
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
READING = ("GET", "HEAD", "OPTIONS")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class SignIn:
    """Tokens, each good for one sign-in, and the sessions that cookies stand for.

    The database has only their hashes.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        for table in ("tokens", "sessions"):
            database.execute(f"DELETE FROM {table} WHERE expires < ?", [time.time()])

    def new_token(self) -> str:
        """A token that is valid for a day."""
        return self._new("tokens", TOKEN_AGE)

    def sign_in(self, token: str) -> str | None:
        """The value of the cookie of a new session; None if the token is not valid (any more)."""
        used = self._database.execute(
            "DELETE FROM tokens WHERE hash = ? AND expires > ?", [_hash(token), time.time()]
        )
        return self._new("sessions", SESSION_AGE) if used.rowcount == 1 else None

    def is_valid(self, cookie: str) -> bool:
        """Whether a cookie stands for a session."""
        found = self._database.execute(
            "SELECT 1 FROM sessions WHERE hash = ? AND expires > ?", [_hash(cookie), time.time()]
        )
        return found.fetchone() is not None

    def _new(self, table: str, age: float) -> str:
        text = secrets.token_urlsafe(32)
        self._database.execute(
            f"INSERT INTO {table} VALUES (?, ?)", [_hash(text), time.time() + age]
        )
        return text


def _hash(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()


class Guard:
    """Lets only permitted requests through to an application; adds headers to all answers.

    In this order: a Host that is not in the list is refused; then `/login` is answered; then
    requests without a valid cookie are refused, all in the same way; then those of other sites
    that would change something.
    """

    def __init__(
        self, app: ASGIApp, *, sign_in: SignIn, hosts: tuple[str, ...], cookie: str
    ) -> None:
        """Wrap an application.

        app: gets the requests that are permitted.
        sign_in: tokens and sessions.
        hosts: names in the header Host that are accepted, in lower case.
        cookie: name of the cookie.
        """
        self._app, self._sign_in, self._hosts, self._cookie = app, sign_in, hosts, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] == "http":
            app = self._permitted(scope["method"], scope["path"], Headers(scope=scope))
            await app(scope, receive, send_with_headers)

    def _permitted(self, method: str, path: str, headers: Headers) -> ASGIApp:
        """What answers a request: the application, or a refusal."""
        match = HOST.fullmatch(headers.get("host", "").lower())
        if match is None or match[1] not in self._hosts:
            return refuse(403, "this name of the server is not allowed; start it with --allow-host")
        if method == "GET" and path == "/login":
            return self._app
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        if not self._sign_in.is_valid(cookie):
            return not_signed_in()
        if method not in READING and _comes_from_elsewhere(headers):
            return refuse(403, "a page of another site sent this request")
        return self._app


def not_signed_in() -> ASGIApp:
    """The one answer to requests that are not signed in."""
    return refuse(401, "not signed in; open the address that `vsrkit studio url` prints")


def _comes_from_elsewhere(headers: Headers) -> bool:
    """Whether a browser sent a request for a page that is not one of this server."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")  # of older browsers
    return origin is not None and origin.partition("://")[2] != headers.get("host")
