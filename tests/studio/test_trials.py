"""Previews and plans in the background: cancelled, failed, forgotten."""

import asyncio

import pytest

from vsrkit.errors import VideoError
from vsrkit.studio import trials
from vsrkit.studio.errors import RequestError
from vsrkit.studio.events import Events
from vsrkit.studio.trials import Trial, Trials, finished


def trial(*models):
    return Trial.of({"video": "v"}, models, {"picture": None})


def states(made):
    return [made.state, *(result["state"] for result in made.results.values())]


def test_a_new_one_cancels_those_that_it_replaces():
    async def scenario():
        begun = asyncio.Event()

        async def compute(model):
            begun.set()
            await asyncio.sleep(60)

        async def quick(model):
            return {"picture": model}

        made = Trials("preview", Events())
        first, other, last = trial("a", "b"), trial("a"), trial("a", "b")
        made.start(first, compute, replaces=lambda _: False)
        made.start(other, compute, replaces=lambda _: False)
        await begun.wait()
        made.start(last, quick, replaces=lambda old: old is first)
        await asyncio.gather(finished(first), finished(last))
        found = states(first), states(other), states(last)
        await made.stop()
        return found, last.as_json()["results"]

    found, results = asyncio.run(scenario())
    assert found == (
        ["cancelled", "running", "waiting"],
        ["running", "running"],
        ["done", "done", "done"],
    )
    assert [result["picture"] for result in results] == ["a", "b"]


def test_one_failure_does_not_stop_the_others():
    async def scenario(bad, prepare=None):
        async def compute(model):
            if model in bad:
                raise VideoError("this\nfails")
            return {}

        made = trial("a", "b")
        Trials("plan", Events()).start(made, compute, prepare=prepare, replaces=lambda _: False)
        await finished(made)
        return made

    async def fail():
        raise MemoryError

    made = asyncio.run(scenario(["a"]))
    assert states(made) == ["done", "failed", "done"]
    assert made.results["a"]["error"] == "this fails"
    assert states(asyncio.run(scenario(["a", "b"]))) == ["failed", "failed", "failed"]
    made = asyncio.run(scenario([], fail))
    assert (states(made), made.error) == (["failed", "waiting", "waiting"], "MemoryError")


def test_old_ones_are_forgotten(monkeypatch):
    monkeypatch.setattr(trials, "KEPT", 2)

    async def scenario():
        forgotten = []
        made = Trials("preview", Events(), forget=forgotten.append)

        async def compute(model):
            return {}

        each = [trial("a") for _ in range(3)]
        for one in each:
            made.start(one, compute, replaces=lambda _: False)
        await asyncio.gather(*map(finished, each))
        with pytest.raises(RequestError):
            made.find(each[0].id)
        assert made.find(each[1].id) is each[1]
        return forgotten == each[:1]

    assert asyncio.run(scenario())
