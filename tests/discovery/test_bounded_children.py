"""A process that is ended at its deadline leaves nothing open, also where the event loop ends at once."""

from __future__ import annotations

import asyncio
import sys

import pytest

from node_agent.discovery.children import NoAnswer, run_bounded

FLOODS = (sys.executable, "-c", "while True: print('x' * 1000)")
SILENT = (sys.executable, "-c", "import signal; signal.pause()")
OUTLIVED = ("/bin/sh", "-c", "setsid sleep 3 & sleep 60")
"""A process of another group has its output for a while after its end."""


@pytest.mark.parametrize("command", [FLOODS, SILENT, OUTLIVED])
def test_nothing_is_left_open_when_it_was_killed(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    create = asyncio.create_subprocess_exec

    async def noted(*arguments: str, **options: object) -> asyncio.subprocess.Process:
        started.append(await create(*arguments, **options))  # type: ignore[arg-type]
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)

    async def scene() -> None:
        with pytest.raises(NoAnswer):
            await run_bounded(command, {"PATH": "/bin:/usr/bin"}, 0.2, 2_000)
        (child,) = started
        # Otherwise asyncio closes the pipe when the process is forgotten, perhaps on a loop that has ended.
        assert child._transport._closed  # type: ignore[attr-defined]

    asyncio.run(scene())
