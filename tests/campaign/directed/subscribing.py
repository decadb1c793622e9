"""Scenes of the feed, the socket and the truncation of the log, each the shortest way to where one bug shows."""

from __future__ import annotations

import time

from berth.client.calls.keyvalue import write_key
from tests.campaign.directed.serving import LiveScene, running, until_reached
from tests.campaign.listening.records import PolicySpan
from tests.log.retention.partitions import cut_log
from tests.support.waiting import async_wait_for

PAGE = 1_000
PARTITION = 100


async def more_than_one_page(scene: LiveScene) -> None:
    """A subscriber reads older events that are more than one page."""
    end = scene.events(PAGE + 50)
    subscriber = scene.feed(scene.admin)
    async with running(subscriber):
        await until_reached(subscriber, end)


async def events_of_two_tenants(scene: LiveScene) -> None:
    """Two tenants have events, while one of them subscribes."""
    one, other = scene.tenants
    subscriber = scene.feed(one)
    async with running(subscriber):
        await until_reached(subscriber, scene.events(1, one))
        scene.events(2, other)
        await until_reached(subscriber, scene.events(1, one))


async def a_socket_that_comes_back(scene: LiveScene) -> None:
    """A socket acknowledges something, is closed, and is opened again when there is more."""
    subscriber = scene.socket(scene.admin)
    end = scene.events(1)
    async with running(subscriber):
        # An acknowledgement follows an event or a checkpoint, by chance.
        await async_wait_for(lambda: scene.events(1) and subscriber.acked > 0, "something is acknowledged")
    end = scene.events(3)
    async with running(subscriber):
        await until_reached(subscriber, end)


async def a_subscriber_behind_the_log(scene: LiveScene) -> None:
    """A subscriber begins before the first event that the log holds."""
    _truncated(scene)
    subscriber = scene.feed(scene.admin)
    async with running(subscriber):
        await async_wait_for(lambda: subscriber.cursor > 0, "an event or a refusal")
    end = scene.events(1)
    async with running(subscriber):
        await until_reached(subscriber, end)


async def a_policy_before_the_truncation(scene: LiveScene) -> None:
    """An operator keeps the place of a subscriber that is away while the log is truncated."""
    answer = scene.admin.http.request(
        "PUT",
        "/v1/retention/scene",
        json={"prevent_truncate": 1},
        headers={"authorization": f"Bearer {scene.admin.key}"},
    )
    assert answer.status_code == 201, answer.text
    scene.history.policies.append(PolicySpan(1, time.monotonic()))
    end = _truncated(scene)
    subscriber = scene.feed(scene.admin)
    async with running(subscriber):
        await async_wait_for(
            lambda: subscriber.cursor >= end or any(one.refused for one in scene.history.sessions), "a response"
        )


async def a_filtered_stream_that_comes_back(scene: LiveScene) -> None:
    """A filtered subscriber has a checkpoint, is disconnected, and resumes there when there is more."""
    subscriber = scene.feed(scene.admin, types=["node.online"])
    end = scene.events(3)
    async with running(subscriber):
        await until_reached(subscriber, end)
        await async_wait_for(lambda: scene.history.sessions[-1].scanned_to >= end, "a checkpoint")
    end = scene.events(5)
    async with running(subscriber):
        await until_reached(subscriber, end)


async def a_subscriber_that_comes_back(scene: LiveScene) -> None:
    """A subscriber resumes while another one makes the process follow the log."""
    other, subscriber = scene.feed(scene.admin, "other"), scene.feed(scene.admin)
    async with running(other):
        await until_reached(other, scene.events(1))
        end = scene.events(5)
        await until_reached(other, end)
        for _ in range(2):
            async with running(subscriber):
                await until_reached(subscriber, end)
            end = scene.events(1)
            await until_reached(other, end)


async def a_commit_in_the_feed(scene: LiveScene) -> None:
    """An operation with a key leaves an event."""
    async with scene.keys() as keys:
        await keys.commit("seen", [write_key(b"key", b"value")])
    subscriber = scene.feed(scene.admin)
    async with running(subscriber):
        await until_reached(subscriber, scene.events(1))


def _truncated(scene: LiveScene) -> int:
    """Leave events, and truncate the log as far as that is allowed; return its end."""
    cut_log(scene.database, PARTITION)
    end = scene.events(5 * PARTITION)
    scene.note_log()
    scene.truncate()
    return end
