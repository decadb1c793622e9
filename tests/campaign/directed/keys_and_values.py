"""Scenes of the key-value store, each the shortest way to where one bug shows."""

from __future__ import annotations

import asyncio

import psycopg

from berth.client.calls.keyvalue import delete_key, unchanged_key, write_key
from tests.allocations.driving import rows_of
from tests.campaign.directed.serving import LiveScene
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import async_wait_for
from worker.supervision import end_all

KEY, OTHER = b"leader", b"other"


async def two_that_read_the_same(scene: LiveScene) -> None:
    """Two commits write what both have read before: the second one has to read again."""
    async with scene.keys() as keys:
        await keys.commit("before", [write_key(KEY, b"0")])
        read = await keys.read(KEY)
        for value in (b"1", b"2"):
            await keys.commit(value.decode(), [write_key(KEY, value)], [unchanged_key(KEY, read.read_version)])


async def a_delete_after_the_read(scene: LiveScene) -> None:
    """The key is deleted after a commit has read it."""
    async with scene.keys() as keys:
        await keys.commit("before", [write_key(KEY, b"0")])
        read = await keys.read(KEY)
        await keys.commit("delete", [delete_key(KEY)])
        await keys.commit("late", [write_key(OTHER, b"1")], [unchanged_key(KEY, read.read_version)])


async def a_read_after_the_delete(scene: LiveScene) -> None:
    """A key is deleted, read, and read once more after everything."""
    async with scene.keys() as keys:
        await keys.commit("write", [write_key(KEY, b"0"), write_key(OTHER, b"0")])
        await keys.commit("delete", [delete_key(KEY)])
        await keys.read(KEY)
        await keys.reader.range(b"", None, limit=500, final=True)


async def another_key_that_changes(scene: LiveScene) -> None:
    """Another key than the one of the precondition has changed."""
    async with scene.keys() as keys:
        await keys.commit("before", [write_key(KEY, b"0")])
        read = await keys.read(KEY)
        await keys.commit("other", [write_key(OTHER, b"0")])
        await keys.commit("late", [write_key(KEY, b"1")], [unchanged_key(KEY, read.read_version)])


async def one_key_through_two_processes(scene: LiveScene) -> None:
    """A commit is repeated under its key through a process that has not seen it."""
    async with scene.keys() as keys, scene.keys(door=1) as others:
        for door in (keys, others):
            await door.commit("same", [write_key(KEY, b"0")])


async def a_read_of_what_has_no_version(scene: LiveScene) -> None:
    """A key is read while its commit waits for its version, because another session holds the end of the log."""
    async with scene.keys() as keys:
        await keys.commit("before", [write_key(KEY, b"0")])
        with psycopg.connect(scene.url) as rival:
            rival.execute("select from log_head for update")
            committing = asyncio.create_task(keys.commit("waits", [write_key(KEY, b"1")]))
            await async_wait_for(lambda: rows_of(scene.url, "select from outbox"), "the commit is stored")
            await until_waiting(scene.url)
            reading = asyncio.create_task(keys.read(KEY))
            waiting = asyncio.create_task(until_waiting(scene.url, 2))
            await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(committing, reading)
        await end_all({waiting})


async def a_read_after_a_commit(scene: LiveScene) -> None:
    """A key is read, changed and read again."""
    async with scene.keys() as keys:
        for value in (b"0", b"1"):
            await keys.commit(value.decode(), [write_key(KEY, value)])
            await keys.read(KEY)


async def a_question_after_a_commit(scene: LiveScene) -> None:
    """The status of an acknowledged commit is queried."""
    async with scene.keys() as keys:
        await keys.commit("asked", [write_key(KEY, b"0")])
        await keys.reader.status("commit-of-the-scene-asked")
