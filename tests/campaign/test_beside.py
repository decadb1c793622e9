"""What goes on beside a campaign is missed when it ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.campaign.beside import WatcherEnded, beside, to_thread_whole
from tests.support.waiting import let_others_run

SECONDS_MAX = 10.0


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise KeyError("units")


async def end() -> None:
    return


@pytest.mark.parametrize(
    ("watcher", "said"),
    [(fail, r"watcher failed: KeyError: 'units'"), (end, "watcher ended, although the block still runs")],
)
def test_a_watcher_that_ends_ends_the_block_and_says_why(watcher: object, said: str) -> None:
    async def play() -> None:
        async with asyncio.timeout(SECONDS_MAX), beside(other=for_ever, watcher=watcher):  # type: ignore[arg-type]
            await for_ever()

    with pytest.raises(WatcherEnded, match=said):
        asyncio.run(play())


def test_what_the_block_raises_comes_out_and_what_it_does_is_done() -> None:
    async def play(error: Exception | None) -> list[str]:
        done = []
        async with beside(watcher=for_ever):
            await let_others_run()
            done.append("the block")
            if error is not None:
                raise error
        done.append("the rest")
        return done

    assert asyncio.run(play(None)) == ["the block", "the rest"]
    with pytest.raises(ZeroDivisionError, match="from the block"):
        asyncio.run(play(ZeroDivisionError("from the block")))


def test_a_thread_is_over_when_its_watcher_is_cancelled() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(SECONDS_MAX)
        ended.set()

    async def play() -> bool:
        working = asyncio.create_task(to_thread_whole(work))
        await asyncio.to_thread(begun.wait, SECONDS_MAX)
        working.cancel()
        await asyncio.wait([working], timeout=0.1)
        assert not working.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await working
        return ended.is_set()

    assert asyncio.run(play())
