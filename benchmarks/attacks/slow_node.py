"""A node that floods the node listener with slow requests: `python -m benchmarks.attacks.slow_node`.

Reads its `NodePlan` as one line of JSON, and prints `ready` when each connection has been opened or refused once. Each connection
sends a heartbeat's head and then its body byte by byte, and is opened again when the server ends it. Ends with its standard input
or after `seconds_max`, and prints how many connections there were and which status lines were received, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Final

import uvloop

from benchmarks.attacks.attacking import last_until_input_ends
from benchmarks.attacks.loopback import raise_files_max

DRIP_SECONDS: Final = 1.0
"""Between two bytes of a body."""
RECONNECT_SECONDS: Final = 0.05
"""Between the end of a connection and the next one."""
READ_BYTES: Final = 65_536
FILES_MAX: Final = 16_384
NICE: Final = 10
"""A node elsewhere takes no CPU time of the listener's machine; this one takes what is left."""
SLOW_HEARTBEAT: Final = (
    b"POST /node/v1/heartbeat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 10000\r\n\r\n{"
)


@dataclass(frozen=True)
class NodePlan:
    """So many connections from one address with one node's certificate and key (PEM files)."""

    port: int
    connections: int
    source: str
    ca: str
    certificate: str
    key: str
    seconds_max: float


async def _send_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Counter[str]) -> None:
    """One request whose body never ends; return when the server has ended the connection."""

    async def read() -> None:
        first = True
        while chunk := await reader.read(READ_BYTES):
            if first:
                seen[chunk[9:12].decode("latin-1")] += 1
            first = False

    ended = asyncio.ensure_future(read())
    try:
        writer.write(SLOW_HEARTBEAT)
        while not (await asyncio.wait([ended], timeout=DRIP_SECONDS))[0]:
            writer.write(b" ")
            await writer.drain()
    finally:
        ended.cancel()


async def _repeat(plan: NodePlan, context: ssl.SSLContext, seen: Counter[str], tried: asyncio.Event) -> None:
    while True:
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", plan.port, ssl=context, local_addr=(plan.source, 0), server_hostname="localhost"
            )
            seen["opened"] += 1
            tried.set()
            await _send_slowly(reader, writer, seen)
        except OSError:
            seen["failed"] += 1
        finally:
            tried.set()
            if writer is not None:
                writer.transport.abort()
        await asyncio.sleep(RECONNECT_SECONDS)


async def _flood(plan: NodePlan) -> Counter[str]:
    asyncio.get_running_loop().set_exception_handler(lambda loop, _: None)  # connections end in every way
    context = ssl.create_default_context(cafile=plan.ca)
    context.load_cert_chain(plan.certificate, plan.key)
    seen: Counter[str] = Counter()
    tried = [asyncio.Event() for _ in range(plan.connections)]
    running = [asyncio.create_task(_repeat(plan, context, seen, event)) for event in tried]
    await last_until_input_ends(running, tried, plan.seconds_max)
    return seen


def main() -> None:
    """Read the plan, flood, print what was seen."""
    raise_files_max(FILES_MAX)
    os.nice(NICE)
    plan = NodePlan(**json.loads(sys.stdin.readline()))
    print(json.dumps(uvloop.run(_flood(plan))), flush=True)


if __name__ == "__main__":
    main()
