"""Runs hostile clients as a separate process beside what a benchmark or a test measures."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

STOP_SECONDS_MAX = 30.0


@dataclass
class Attack:
    """A running attack; `report` is what it printed at its end."""

    process: subprocess.Popen[str]
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether its process is alive."""
        return self.process.poll() is None


@contextmanager
def attacking(module: str, plan: Any) -> Iterator[Attack]:
    """Run `python -m module` with this plan while the block lasts. Raises RuntimeError if it does not become ready."""
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        attack = Attack(process)
        try:
            process.stdin.write(json.dumps(asdict(plan)) + "\n")
            process.stdin.flush()
            if (line := process.stdout.readline()) != "ready\n":
                raise RuntimeError(f"{module} printed {line!r} instead of being ready")
            yield attack
            answer, _ = process.communicate(timeout=STOP_SECONDS_MAX)
            attack.report = json.loads(answer)
        finally:
            if attack.runs:
                process.kill()


async def last_until_input_ends(
    running: Sequence[asyncio.Task[None]], begun: Sequence[asyncio.Event], seconds_max: float
) -> None:
    """The attacking process's side of `attacking`: print `ready` when all have begun, and end all with standard input.

    Ends them after `seconds_max` in any case.
    """
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    try:
        async with asyncio.timeout(seconds_max):
            await asyncio.gather(*(event.wait() for event in begun))
            print("ready", flush=True)
            await ended
    except TimeoutError:
        pass
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
