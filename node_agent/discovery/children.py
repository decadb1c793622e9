"""Runs one part of discovery in a separate process, for a bounded time, and reads a bounded answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

ANSWER_BYTES_MAX = 256 * 1024
_KILL_SECONDS_MAX = 1.0


class NoAnswer(Exception):
    """The process did not answer; the text says why."""


async def ask_child(module: str, arguments: Sequence[str], environment: Mapping[str, str], seconds: float) -> bytes:
    """Return what `python -m module` prints. Raises NoAnswer. No process is left behind, unless the kernel cannot end it."""
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, env=dict(environment), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NoAnswer(f"no process can be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(seconds):
            answer = await _read(child)
            code = await child.wait()
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {seconds:g} s") from error
    finally:
        await _end(child)
    if code != 0:
        how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
        raise NoAnswer(f"the process {how}")
    return answer


async def _read(child: asyncio.subprocess.Process) -> bytes:
    if child.stdout is None:
        raise NoAnswer("the process has no output")
    answer = b""
    while part := await child.stdout.read(65_536):
        answer += part
        if len(answer) > ANSWER_BYTES_MAX:
            raise NoAnswer(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return answer


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    with suppress(ProcessLookupError):
        child.kill()
    # A process that waits for a device inside the kernel ends only when the device answers.
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILL_SECONDS_MAX):
            await child.wait()
