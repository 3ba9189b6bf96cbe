"""Who is not signed in learns nothing; only pages of the studio itself can change something."""

import sqlite3
import time

import pytest
from starlette.routing import Route
from tests.studio.conftest import COOKIE, running_studio

from vsrkit.studio.auth import HEADERS, SignIn
from vsrkit.studio.state_folder import TABLES


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with running_studio(tmp_path_factory.mktemp("videos")) as client:
        yield client


@pytest.fixture
def stranger(client):
    """The same client without its cookie."""
    cookies = list(client.cookies.jar)
    client.cookies.clear()
    yield client
    for cookie in cookies:
        client.cookies.jar.set_cookie(cookie)


def routes(client):
    """Method and path of every route."""
    app = client.studio.application()._app
    found = [route for route in app.routes if isinstance(route, Route)]
    assert len(found) > 30
    for route in found:
        path = route.path.replace("{name:path}", "x.css").replace("{id}", "1")
        for name in ("{part:int}", "{frame:int}", "{name}"):
            path = path.replace(name, "0")
        for method in route.methods - {"HEAD"}:
            yield method, path


def test_strangers_get_the_same_answer_everywhere(stranger):
    answers = {
        (answer.status_code, answer.content, tuple(sorted(answer.headers)))
        for method, path in [*routes(stranger), ("GET", "/none"), ("POST", "/"), ("TRACE", "/")]
        if path != "/login"
        for answer in [stranger.request(method, path)]
    }
    assert [(status, b"not signed in" in body) for status, body, _ in answers] == [(401, True)]


@pytest.mark.parametrize("token", ["", "x", "ü" * 500])
def test_a_wrong_token_is_refused(stranger, token):
    answer = stranger.get("/login", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("cookie", ["", "x", "a" * 5000])
def test_a_wrong_cookie_is_refused(stranger, cookie):
    answer = stranger.get("/api/session", headers={"cookie": f"{COOKIE}={cookie}"})
    assert answer.status_code == 401


def test_a_token_can_be_used_once(client):
    token = client.portal.call(client.studio.sign_in.new_token)
    first = client.get(f"/login?token={token}")
    assert first.status_code == 200
    assert client.get(f"/login?token={token}").status_code == 401


def test_the_cookie_is_kept_from_scripts_and_other_sites(client):
    token = client.portal.call(client.studio.sign_in.new_token)
    given = client.get(f"/login?token={token}").headers["set-cookie"]
    assert "HttpOnly" in given
    assert "SameSite=strict" in given


def test_tokens_and_sessions_end():
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(TABLES)
    sign_in = SignIn(database)
    old, new = sign_in.new_token(), sign_in.new_token()
    cookie = sign_in.sign_in(new)
    assert sign_in.is_valid(cookie)
    for table in ("tokens", "sessions"):
        database.execute(f"UPDATE {table} SET expires = ?", [time.time() - 1])
    assert sign_in.sign_in(old) is None
    assert not sign_in.is_valid(cookie)


def test_the_database_has_no_secrets():
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(TABLES)
    sign_in = SignIn(database)
    token = sign_in.new_token()
    cookie = sign_in.sign_in(sign_in.new_token())
    content = "\n".join(database.iterdump())
    assert token not in content
    assert cookie not in content


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8686", "127.0.0.1.evil.example", "", "127.0.0.1@x", "::1"],
)
def test_other_names_of_the_server_are_refused(client, host):
    for path in ("/api/session", "/login?token=x", "/none"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 403
        assert b"--allow-host" in answer.content


@pytest.mark.parametrize("host", ["localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:8686"])
def test_names_of_this_machine_are_accepted(client, host):
    headers = {"host": host, "cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    assert client.get("/api/session", headers=headers).status_code == 200


FROM_ELSEWHERE = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"},
]


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
def test_other_sites_cannot_change_anything(client, headers):
    before = client.get("/api/jobs").json()
    changing = [pair for pair in routes(client) if pair[0] not in ("GET", "OPTIONS")]
    assert len(changing) > 10
    for method, path in changing:
        answer = client.request(method, path, headers=headers, content=b'{"paused": true}')
        assert answer.status_code == 403, (method, path)
    assert client.get("/api/jobs").json() == before


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"origin": "http://127.0.0.1:8686"},
    ],
)
def test_its_own_pages_can(client, headers):
    answer = client.put("/api/queue", json={"paused": False}, headers=headers)
    assert answer.status_code == 200


def test_other_sites_can_link_to_it(client):
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200


def test_every_answer_has_the_headers(client):
    answers = [
        client.get("/"),
        client.get("/api/session"),
        client.get("/api/videos/none"),
        client.get("/none"),
        client.post("/api/library"),
        client.post("/api/jobs", content=b"{"),
        client.get("/static/none.css"),
        client.get("/api/session", headers={"host": "evil.example"}),
        client.get("/api/session", headers={"cookie": ""}),
    ]
    codes = [200, 200, 404, 404, 405, 400, 404, 403, 401]
    assert [answer.status_code for answer in answers] == codes
    for answer in answers:
        for name, value in HEADERS.items():
            if name != "Cache-Control":  # files may be kept
                assert answer.headers[name] == value
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    "name", ["../app.py", "%2e%2e/app.py", "..%2fapp.py", "app.py", ".hidden.css", "/etc/passwd"]
)
def test_only_files_of_the_page_are_served(client, name):
    assert client.get(f"/static/{name}").status_code == 404
