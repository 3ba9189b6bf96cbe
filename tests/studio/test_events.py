"""Server-sent events: the newest value reaches every page, however slowly it reads."""

import asyncio
import json

import pytest

from vsrkit.studio import events
from vsrkit.studio.errors import RequestError
from vsrkit.studio.events import Events


def parsed(content):
    """Names and values of the events in some bytes."""
    for block in content.decode().strip().split("\n\n"):
        if block != ":":
            name, data = block.split("\n")
            yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_slow_page_gets_the_newest_value_of_each_thing():
    async def scenario():
        made = Events()
        stream = made.open()
        (hello,) = parsed(await anext(stream))
        for done in range(1000):
            made.publish("job", {"id": "1", "done": done}, "1")
            made.publish("job", {"id": "2", "done": -done}, "2")
        made.publish("queue", {"paused": True})
        waiting = next(iter(made._pages))._waiting
        assert len(waiting) == 3
        return hello, list(parsed(await anext(stream)))

    hello, found = asyncio.run(scenario())
    assert hello[0] == "hello"
    assert found == [
        ("job", {"id": "1", "done": 999}),
        ("job", {"id": "2", "done": -999}),
        ("queue", {"paused": True}),
    ]


def test_a_page_that_is_closed_is_forgotten(monkeypatch):
    monkeypatch.setattr(events, "MOST_PAGES", 2)

    async def scenario():
        made = Events()
        streams = [made.open(), made.open()]
        with pytest.raises(RequestError, match="too many pages"):
            made.open()
        for stream in streams:
            await anext(stream)
            await stream.aclose()
        assert made.pages == 0
        made.publish("queue", {})
        made.open()

    asyncio.run(scenario())


def test_quiet_connections_carry_comments(monkeypatch):
    monkeypatch.setattr(events, "QUIET_S", 0.01)

    async def scenario():
        made = Events()
        stream = made.open()
        await anext(stream)
        assert await anext(stream) == b":\n\n"
        made.close()
        return [content async for content in stream]

    assert asyncio.run(scenario()) == []


def test_text_of_strangers_cannot_end_an_event():
    async def scenario():
        made = Events()
        stream = made.open()
        await anext(stream)
        made.publish("video", {"name": "a\n\nevent: job\r\u2028ü\udcff"})
        return list(parsed(await anext(stream)))

    assert asyncio.run(scenario()) == [("video", {"name": "a\n\nevent: job\r\u2028ü\udcff"})]
