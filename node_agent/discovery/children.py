"""Runs one part of discovery or of a probe in a separate process, for a bounded time, and reads a bounded answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from node_agent.wire.fields import first_error

Report = TypeVar("Report", bound=BaseModel)

ANSWER_BYTES_MAX = 256 * 1024
_KILL_SECONDS_MAX = 1.0


class NoAnswer(Exception):
    """The process did not answer; the text says why."""


async def ask_child(module: str, arguments: Sequence[str], environment: Mapping[str, str], seconds: float) -> bytes:
    """Return what `python -m module` prints. Raises NoAnswer. No process is left behind, unless the kernel cannot end it."""
    code, answer = await run_bounded(
        (sys.executable, "-m", module, *arguments), environment, seconds, ANSWER_BYTES_MAX
    )  # fmt: skip
    require_success(code)
    return answer


async def ask_report(
    model: type[Report], module: str, arguments: Sequence[str], environment: Mapping[str, str], seconds: float
) -> Report:
    """Return what `python -m module` prints, validated. Raises NoAnswer."""
    return read_report(model, await ask_child(module, arguments, environment, seconds))


def read_report(model: type[Report], answer: bytes) -> Report:
    """Return the answer of a process, validated. Raises NoAnswer."""
    try:
        return model.model_validate_json(answer)
    except ValidationError as error:
        raise NoAnswer(f"the answer is no report: {first_error(error)}") from error


def require_success(code: int) -> None:
    """Raise NoAnswer if a process with this exit code failed."""
    if code != 0:
        raise NoAnswer(f"the process {f'was ended by signal {-code}' if code < 0 else f'exited with {code}'}")


async def run_bounded(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, bytes_max: int
) -> tuple[int, bytes]:
    """Return exit code and output of a command. Raises NoAnswer. Its process group is killed at the deadline and at the bound."""
    try:
        child = await asyncio.create_subprocess_exec(
            *command, env=dict(environment), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NoAnswer(f"no process can be started: {error.strerror}") from error
    has_ended = False
    try:
        async with asyncio.timeout(seconds):
            answer = await _read(child, bytes_max)
            code = await child.wait()
        has_ended = True
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {seconds:g} s") from error
    finally:
        if not has_ended:
            await _end(child)
    return code, answer


async def _read(child: asyncio.subprocess.Process, bytes_max: int) -> bytes:
    if child.stdout is None:
        raise NoAnswer("the process has no output")
    answer = b""
    while part := await child.stdout.read(65_536):
        answer += part
        if len(answer) > bytes_max:
            raise NoAnswer(f"the answer is larger than {bytes_max} bytes")
    return answer


async def _end(child: asyncio.subprocess.Process) -> None:
    # The group, because a process of the child may hold its output open after the child has ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    # A process that waits for a device inside the kernel ends only when the device answers.
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILL_SECONDS_MAX):
            await child.wait()
    # Its pipe, which is otherwise closed some rounds of the event loop later; asyncio has no public way to.
    child._transport.close()  # type: ignore[attr-defined]
