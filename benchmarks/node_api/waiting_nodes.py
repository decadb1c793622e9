"""Many nodes in one process, each a real mTLS long poll, as agents do: `python -m benchmarks.node_api.waiting_nodes`.

Reads its plan as one line of JSON; when all tasks have arrived writes JSON: task id -> wall clock at arrival (seconds). With
`heartbeat_seconds` in the plan each node sends heartbeats as well, over the same connection between polls of at most that long;
with `inventories` each heartbeat has the node's complete inventory. With `reconnects` a node whose connection is lost
connects again after the pauses of an agent. A node may have its own `port`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import ssl
import sys
import time
from typing import Any

import orjson
import uvloop

from berth.process.backoff import Backoff

CONNECTING_AT_ONCE = 200
POLL_SECONDS = 60
RETRY_SECONDS = 1.0
HEARTBEAT_EARLY_SECONDS = 0.05
"""A poll ends a little before its time: its heartbeat is due."""
RECONNECT_SECONDS_MAX = 5.0
"""As an agent's pauses between attempts to wait for tasks."""
SOURCES = [f"127.0.1.{host}" for host in range(1, 17)]
"""Addresses that nodes connect from, in turn: a listener bounds the connections from one."""
HEARTBEAT = b'{"agent_version":"bench","driver":"sandbox","allocations":[]%s}'
INVENTORY = b',"inventory":{"gathered_after":"%s","allocations":[]}'
HEARTBEAT_HEAD = (
    b"POST /node/v1/heartbeat HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class _Fleet:
    """What all nodes share."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.port: int = plan["port"]
        self.ca: str = plan["ca"]
        self.tasks: int = plan["tasks"]
        self.arrived: dict[str, float] = {}
        self.done = asyncio.Event()
        self.connecting = asyncio.Semaphore(CONNECTING_AT_ONCE)
        self.contexts: dict[str, ssl.SSLContext] = {}  # an agent reads its files once, too
        self.heartbeats: bool = "heartbeat_seconds" in plan
        self.inventories: bool = plan.get("inventories", False)
        self.reconnects: bool = plan.get("reconnects", False)
        self.heartbeat_seconds: float = plan.get("heartbeat_seconds", POLL_SECONDS)
        self.poll_seconds = min(self.heartbeat_seconds, POLL_SECONDS)

    def note(self, body: bytes, now: float) -> list[str]:
        """Remember when the tasks of an answer came; their ids."""
        ids = [task["task_id"] for task in orjson.loads(body)["tasks"]]
        for task in ids:
            self.arrived.setdefault(task, now)
        if len(self.arrived) >= self.tasks:
            self.done.set()
        return ids


async def _node(fleet: _Fleet, identity: dict[str, Any]) -> None:
    """Wait, take, wait again naming what was taken."""
    known: list[str] = []
    backoff = Backoff(most_seconds=RECONNECT_SECONDS_MAX)
    while True:
        try:
            reader, writer = await _connect(fleet, identity)
            backoff.reset()
            await _serve(fleet, reader, writer, known)
        except (OSError, EOFError):
            if not fleet.reconnects:
                raise
            await asyncio.sleep(backoff.next_seconds())


async def _connect(fleet: _Fleet, identity: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with fleet.connecting:
        # Within the bound: files that are read meanwhile would delay handshakes of others beyond their deadline.
        context = fleet.contexts.get(identity["certificate"])
        if context is None:
            context = fleet.contexts[identity["certificate"]] = ssl.create_default_context(cafile=fleet.ca)
            context.load_cert_chain(identity["certificate"], identity["key"])
        port, source = identity.get("port", fleet.port), (identity["source"], 0)
        return await asyncio.open_connection("127.0.0.1", port, ssl=context, local_addr=source)


async def _serve(fleet: _Fleet, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, known: list[str]) -> None:
    """Polls and heartbeats over one connection, until it is lost."""
    heartbeat_at = time.monotonic() + random.uniform(0, fleet.heartbeat_seconds)
    inventory = b""
    while True:
        seconds = fleet.poll_seconds
        if fleet.heartbeats:
            # A task can end a poll just before a heartbeat is due; a whole poll after it would leave the node silent.
            seconds = max(0.0, min(seconds, heartbeat_at - time.monotonic()))
        query = "".join(f"&known={task}" for task in known)
        wait = f"GET /node/v1/tasks/wait?timeout_seconds={seconds:.3f}{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        known += fleet.note(await _exchange(reader, writer, wait.encode()), time.time())
        if fleet.heartbeats and time.monotonic() >= heartbeat_at - HEARTBEAT_EARLY_SECONDS:
            heartbeat_at += fleet.heartbeat_seconds
            heartbeat = HEARTBEAT % inventory
            answer = orjson.loads(await _exchange(reader, writer, HEARTBEAT_HEAD % len(heartbeat) + heartbeat))
            if fleet.inventories:
                inventory = INVENTORY % answer["server_time"].encode()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """The body of the response; 503 is repeated, as agents do. Raises RuntimeError for any other status but 200."""
    status = b"503"
    while status == b"503":
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        body = await reader.readexactly(length)
        status = head[9:12]
        if status == b"503":
            await asyncio.sleep(RETRY_SECONDS)
    if status != b"200":
        raise RuntimeError(f"a node's request was answered {head[9:12]!r}: {body[:300]!r}")
    return body


async def _run(plan: dict[str, Any]) -> dict[str, float]:
    fleet = _Fleet(plan)
    nodes = [
        asyncio.create_task(_node(fleet, {**identity, "source": SOURCES[number // 2 % len(SOURCES)]}))
        for number, identity in enumerate(plan["nodes"])
    ]
    done = asyncio.create_task(fleet.done.wait())
    await asyncio.wait([done, *nodes], return_when=asyncio.FIRST_COMPLETED)
    for node in nodes:
        if node.done():
            node.result()
        node.cancel()
    return fleet.arrived


def main() -> None:
    """Read the plan, wait for all tasks, tell when they came."""
    # A collection would stop all nodes at once, for half a second of 10,000; agents share no process.
    gc.disable()
    arrived = uvloop.run(_run(json.loads(sys.stdin.readline())))
    # Not `print`: with PYTHONUNBUFFERED it loses what a pipe does not take at once.
    with open(sys.stdout.fileno(), "w", closefd=False) as output:
        json.dump(arrived, output)


if __name__ == "__main__":
    main()
