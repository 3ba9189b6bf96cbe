"""Uploads: resumed, limited, never half-written, never over another file."""

import asyncio
import json

import pytest
from tests.clips import write_clip
from tests.studio.conftest import running_studio, videos

from vsrkit.studio import uploads
from vsrkit.studio.errors import RequestError
from vsrkit.studio.state_folder import StateFolder
from vsrkit.studio.uploads import Uploads


def declare(client, name="a.mp4", size=10, **more):
    return client.post("/api/uploads", json={"name": name, "size": size, **more})


def send(client, upload, content, offset=0, **headers):
    return client.put(f"/api/uploads/{upload}?offset={offset}", content=content, headers=headers)


def written(folder):
    """All files of the folder and of the hidden one with uploads."""
    hidden = StateFolder(folder / ".vsrkit-studio").uploads
    return sorted(path.name for path in (*folder.iterdir(), *hidden.iterdir()) if not path.is_dir())


def test_a_file_arrives_in_pieces(client, folder, tmp_path):
    content = write_clip(tmp_path / "clip.mp4").read_bytes()
    upload = declare(client, size=len(content)).json()
    assert (upload["offset"], upload["video"]) == (0, None)
    first = send(client, upload["id"], content[:1000]).json()
    assert (first["offset"], first["video"]) == (1000, None)
    assert client.get(f"/api/uploads/{upload['id']}").json() == first
    assert client.get("/api/uploads").json() == {"uploads": [first]}
    wrong = send(client, upload["id"], content[1000:], offset=999)
    assert (wrong.status_code, wrong.json()["offset"]) == (409, 1000)
    done = send(client, upload["id"], content[1000:], offset=1000).json()
    assert done["offset"] == len(content)
    assert (folder / "a.mp4").read_bytes() == content
    assert videos(client)["a.mp4"]["id"] == done["video"]
    assert client.get("/api/uploads").json() == {"uploads": []}
    assert send(client, upload["id"], b"more", offset=len(content)).status_code == 409
    assert (folder / "a.mp4").read_bytes() == content


def test_blocks_are_written_as_they_arrive(client, folder, monkeypatch):
    monkeypatch.setattr(uploads, "BLOCK", 16)
    content = bytes(range(256)) * 4
    upload = declare(client, size=len(content)).json()
    assert send(client, upload["id"], iter([content[:700], content[700:]])).json()["video"]
    assert (folder / "a.mp4").read_bytes() == content


def test_the_same_key_finds_an_upload_after_a_restart(folder):
    with running_studio(folder) as client:
        upload = declare(client, size=10, key="k").json()
        send(client, upload["id"], b"12345")
        assert declare(client, size=10, key="k").json()["offset"] == 5
        assert declare(client, size=11, key="k").json()["id"] != upload["id"]
        assert declare(client, size=10).json()["id"] != upload["id"]
    with running_studio(folder) as client:
        again = declare(client, size=10, key="k").json()
        assert (again["id"], again["offset"]) == (upload["id"], 5)
        assert send(client, again["id"], b"67890", offset=5).json()["video"]
    assert (folder / "a.mp4").read_bytes() == b"1234567890"


def test_an_upload_that_was_complete_when_the_server_ended_becomes_a_video(folder):
    with running_studio(folder) as client:
        upload = declare(client, size=3).json()["id"]
    (StateFolder.of(folder).uploads / upload).write_bytes(b"all")
    (StateFolder.of(folder).uploads / "unknown").write_bytes(b"x")
    with running_studio(folder) as client:
        assert client.get("/api/uploads").json() == {"uploads": []}
    assert written(folder) == ["a.mp4"]


def test_a_file_whose_last_answer_was_lost_is_not_sent_again(client, folder):
    (folder / "a.mp4").write_bytes(b"mine")
    upload = declare(client, size=3, key="k").json()
    done = send(client, upload["id"], b"new").json()
    assert declare(client, size=3, key="k").json() == done
    assert (done["name"], done["offset"]) == ("a-2.mp4", 3)
    (folder / "a-2.mp4").unlink()  # deleted, so that it can be sent again
    assert declare(client, size=3, key="k").json()["video"] is None


def test_a_key_is_a_line(client):
    for key in ("a\nb", "\ud800", "k" * 1001, 5):
        body = json.dumps({"name": "a.mp4", "size": 10, "key": key})
        assert client.post("/api/uploads", content=body).status_code == 400


def test_no_file_is_replaced(client, folder):
    (folder / "a.mp4").write_bytes(b"mine")
    upload = declare(client, size=3).json()["id"]
    assert send(client, upload, b"new").json()["name"] == "a-2.mp4"
    assert (folder / "a.mp4").read_bytes() == b"mine"
    assert (folder / "a-2.mp4").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("name", "size", "status"),
    [
        ("a.mp4", (1 << 20) + 1, 413),
        ("a.mp4", 0, 400),
        ("a.mp4", -1, 400),
        ("a.mp4", "10", 400),
        ("a.mp4", 1.5, 400),
        ("x.svg", 10, 415),
        ("x.html", 10, 415),
        ("mp4", 10, 415),
        ("../a.mp4", 10, 400),
        ("/tmp/a.mp4", 10, 400),
        (".a.mp4", 10, 400),
        (None, 10, 400),
    ],
)
def test_what_is_no_video_or_too_large_is_refused(client, folder, name, size, status):
    answer = declare(client, name, size)
    assert answer.status_code == status
    assert answer.json()["error"].count("\n") == 0
    assert written(folder) == []


def test_a_full_disk_is_noticed_before_the_upload(client, folder, monkeypatch):
    monkeypatch.setattr(uploads, "SPARE", 1 << 60)
    assert declare(client).status_code == 507
    assert written(folder) == []


@pytest.mark.parametrize("chunked", [False, True])
def test_more_than_declared_is_refused(client, folder, chunked, monkeypatch):
    monkeypatch.setattr(uploads, "BLOCK", 4)  # some of it would be written before the end
    upload = declare(client, size=10).json()["id"]
    send(client, upload, b"123")
    pieces = [b"4567", b"89012", b"3"]
    answer = send(client, upload, iter(pieces) if chunked else b"".join(pieces), offset=3)
    assert answer.status_code == 413
    assert client.get(f"/api/uploads/{upload}").json()["offset"] == 3
    assert written(folder) == [upload]


def test_a_discarded_upload_leaves_nothing(client, folder):
    upload = declare(client).json()["id"]
    send(client, upload, b"12345")
    assert written(folder) == [upload]
    assert client.delete(f"/api/uploads/{upload}").status_code == 204
    assert written(folder) == []
    for answer in (
        send(client, upload, b"6", offset=5),
        client.get(f"/api/uploads/{upload}"),
        client.delete(f"/api/uploads/{upload}"),
    ):
        assert answer.status_code == 404


@pytest.mark.parametrize("offset", ["-1", "x", "1.5", "", "9" * 5000, "٣"])
def test_an_offset_is_a_number(client, offset):
    upload = declare(client).json()["id"]
    answer = client.put(f"/api/uploads/{upload}", params={"offset": offset}, content=b"x")
    assert answer.status_code == 400


@pytest.fixture
def store(folder):
    state = StateFolder.of(folder)
    return Uploads(folder, state.uploads, state.open_database(), largest=1000)


def test_a_broken_connection_keeps_what_arrived(store, folder):
    async def broken():
        yield b"12345"
        raise RequestError(400, "the connection ended")

    upload = store.declare("a.mp4", 10, None)
    with pytest.raises(RequestError, match="the connection ended"):
        asyncio.run(store.write(upload.id, 0, 10, broken()))
    assert upload.path.read_bytes() == b"12345"


def test_a_later_request_takes_over_from_a_dead_one(store, folder):
    async def scenario():
        upload = store.declare("a.mp4", 8, None)
        hold = asyncio.Event()

        async def dead():
            yield b"1234"
            await hold.wait()
            yield b"xxxx"

        async def alive():
            yield b"abcdefgh"

        first = asyncio.create_task(store.write(upload.id, 0, 8, dead()))
        await asyncio.sleep(0)  # it waits for its second chunk, nothing is written
        done = await store.write(upload.id, 0, 8, alive())
        hold.set()
        with pytest.raises(RequestError) as refusal:
            await first
        return done, refusal.value

    done, refusal = asyncio.run(scenario())
    assert done.video is not None
    assert refusal.status == 409
    assert (folder / "a.mp4").read_bytes() == b"abcdefgh"


def test_a_full_disk_while_it_arrives_keeps_the_right_bytes(store, monkeypatch):
    def write(path, content):
        with path.open("ab") as file:
            file.write(content[:3])
        raise OSError(28, "No space left on device")

    async def chunks():
        yield b"123456"
        yield b"7890"

    upload = store.declare("a.mp4", 10, None)
    with monkeypatch.context() as patch:
        patch.setattr(uploads, "_write", write)
        patch.setattr(uploads, "BLOCK", 4)
        with pytest.raises(OSError, match="No space left"):
            asyncio.run(store.write(upload.id, 0, None, chunks()))
    assert upload.path.read_bytes() == b"123"
