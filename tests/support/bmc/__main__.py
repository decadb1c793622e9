"""`python -m tests.support.bmc DIRECTORY`: serve a stub until a signal; writes `certificate.pem` and `url` into DIRECTORY."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from node_agent.redfish.clock import SystemClock
from tests.support.bmc.machine import StubMachine
from tests.support.bmc.server import certificate, server_context, serving
from tests.support.bmc.service import StubService


async def main(directory: Path) -> None:
    """Serve with the machine's clock."""
    service = StubService(StubMachine(SystemClock()))
    async with serving(service, server_context(1), 0) as port:
        (directory / "certificate.pem").write_bytes(certificate(1)[0])
        (directory / "url").write_text(f"https://127.0.0.1:{port}")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
