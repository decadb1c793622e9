"""What a poll holds while it waits, when it ends, and that its connection's TLS session is not resumed."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from berth.process.combined_calls import CombinedCalls
from orchestrator.app import build_services, node_listener
from orchestrator.edge.connection_parts import Pipeline, SmallEvent
from orchestrator.edge.listeners import PEER_MEMBERS
from orchestrator.http.asgi import App, Message
from orchestrator.nodes.certificates import node_identity, node_uri
from orchestrator.nodes.deploy_systems.identity import PEER
from orchestrator.operations.execution import Context
from orchestrator.tasks.dispatcher import Dispatcher
from orchestrator.tasks.store.dispatch import Dispatched
from orchestrator.tasks.store.polls import Polling
from tests.nodes.conftest import NodeListener
from tests.support.public_api import settings_over
from tests.support.waiting import WAIT_SECONDS_MAX, let_others_run

POLLS = 50
OBJECTS_MAX = 50
"""That the collector tracks, of a waiting poll inside the application: 40, and 66 with closures in the edge."""
LONG_SECONDS = 60.0
TASK = Dispatched(uuid.UUID(int=1), uuid.UUID(int=2), {}, 0.0)


def dispatcher() -> Dispatcher:
    """One whose loop does not run: nothing asks the database."""
    return Dispatcher(cast(Context, None), tick_seconds=1, batch_max=1)


def test_a_wait_that_is_over_does_not_end_the_next_one_of_its_node() -> None:
    async def scene() -> None:
        waits, node = dispatcher(), uuid.uuid4()
        first = asyncio.create_task(waits.wait(node, "aa", LONG_SECONDS))
        await let_others_run()
        second = asyncio.create_task(waits.wait(node, "bb", LONG_SECONDS))
        assert await first == []
        await let_others_run(10)
        assert not second.done()
        waits.close()
        assert await second == []

    asyncio.run(scene())


def test_a_wait_ends_at_its_time_and_is_counted_no_longer() -> None:
    async def scene() -> None:
        waits, node = dispatcher(), uuid.uuid4()
        assert await waits.wait(node, "aa", 0.0) == []
        assert (waits._waiters, waits._serials) == ({}, {})
        cancelled = asyncio.create_task(waits.wait(node, "aa", LONG_SECONDS))
        await let_others_run()
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert (waits._waiters, waits._serials) == ({}, {})

    asyncio.run(scene())


def test_a_task_that_comes_as_the_wait_ends_is_delivered_or_left_for_the_next() -> None:
    """The time is up before its waiter has run: the answer is whole, and no task is put where nothing reads it."""

    async def scene() -> None:
        waits, node = dispatcher(), uuid.uuid4()
        waiting = asyncio.create_task(waits.wait(node, "aa", LONG_SECONDS))
        await let_others_run()
        waits._end(node, [TASK])
        waits._expire(node, asyncio.get_running_loop().create_future())
        assert await waiting == [TASK]

    asyncio.run(scene())


def _scope(node: uuid.UUID, trust_domain: str) -> dict[str, Any]:
    peer = {"subjectAltName": (("URI", node_uri(trust_domain, node)),), "serialNumber": "AA"}
    return {
        "type": "http", "method": "GET", "path": "/node/v1/tasks/wait", "query_string": b"timeout_seconds=60", "scheme": "https",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "state": {PEER: peer},
    }  # fmt: skip


async def _silent() -> Message:
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


def test_a_waiting_poll_holds_few_objects(database_url: str, tmp_path: Path) -> None:
    async def polling(nodes: Sequence[tuple[uuid.UUID, str]]) -> list[Polling | None]:
        return [Polling(1, False, frozenset()) for _ in nodes]

    async def scene() -> None:
        services = build_services(settings_over(database_url, tmp_path))
        services = replace(services, polls=CombinedCalls(polling, items_max=500))
        app = node_listener(services)
        answers: Counter[int] = Counter()
        waiting: list[asyncio.Task[None]] = []

        async def poll() -> None:
            node = uuid.uuid4()
            waiting.append(asyncio.create_task(_answered(app, _scope(node, services.settings.trust_domain), answers)))
            while services.dispatcher._waiters.get(node) is None:
                await let_others_run()

        await poll()  # what the first one makes is shared
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(POLLS):
            await poll()
        gc.collect()
        held = (len(gc.get_objects()) - before) / POLLS
        services.dispatcher.close()
        await asyncio.gather(*waiting)
        assert answers == {200: 1 + POLLS}
        assert held <= OBJECTS_MAX

    asyncio.run(scene())


async def _answered(app: App, scope: dict[str, Any], answers: Counter[int]) -> None:
    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answers[message["status"]] += 1

    await app(scope, _silent, send)


@pytest.mark.parametrize("cleared", [False, True])
def test_the_event_of_a_connection_wakes_every_waiter_as_any_event(cleared: bool) -> None:
    async def scene() -> None:
        event = SmallEvent()
        first, cancelled, last = (asyncio.create_task(event.wait()) for _ in range(3))
        await let_others_run()
        cancelled.cancel()
        await let_others_run()
        event.set()
        if cleared:
            event.clear()
        assert (await first, await last) == (True, True)
        assert event.is_set() is not cleared
        assert await SmallEvent(is_set=True).wait()

    asyncio.run(scene())


def test_pipelined_requests_are_served_in_their_order() -> None:
    pipeline = Pipeline()
    for number in range(3):
        pipeline.appendleft(number)
    assert [pipeline.pop() for _ in range(3)] == [0, 1, 2]


def test_what_is_kept_of_a_certificate_names_its_node(listener: NodeListener) -> None:
    (node,) = listener.nodes()
    whole = {
        "subject": ((("commonName", "x"),),), "serialNumber": "0A", "subjectAltName": (("URI", node_uri("berth.local", node)),),
    }  # fmt: skip
    kept = {name: whole[name] for name in PEER_MEMBERS}
    assert node_identity(kept, "berth.local") == node_identity(whole, "berth.local")
    assert listener.node(node).wait() == []


def test_no_session_of_a_node_is_resumed(listener: NodeListener) -> None:
    """A resumed session shows no certificate: one of a CA that is trusted no longer would go on."""
    (node,) = listener.nodes()
    issued, path = listener.certificate(node)
    listener.record(node, issued)
    context = ssl.create_default_context(cafile=str(listener.files.ca_certificate))
    context.load_cert_chain(path)
    port = int(listener.url.rsplit(":", 1)[1])
    session: ssl.SSLSession | None = None
    for _ in range(2):
        plain = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS_MAX)
        with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection:
            connection.sendall(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")  # tickets would precede it
            assert connection.version() == "TLSv1.3"
            assert not connection.session_reused
            session = connection.session
            assert session is None or not session.has_ticket
