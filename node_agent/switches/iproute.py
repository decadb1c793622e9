"""Runs `ip` and `bridge` of iproute2, in the agent's network namespace or in a named one, each bounded in time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final

from berth.process.json_objects import JsonObject
from node_agent.switches.contract import SwitchRefused, SwitchUnanswered

COMMAND_SECONDS_MAX: Final = 20.0
DETAIL_LENGTH_MAX: Final = 200


async def run(program: str, namespace: str | None, arguments: Sequence[str]) -> str:
    """What the program prints. Raises SwitchRefused if it fails, SwitchUnanswered if it does not end in time or cannot start."""
    line = [program, *([] if namespace is None else ["-n", namespace]), *arguments]
    try:
        process = await asyncio.create_subprocess_exec(
            *line, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise SwitchUnanswered(f"{program} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(COMMAND_SECONDS_MAX):
            printed, complaint = await process.communicate()
    except TimeoutError:
        raise SwitchUnanswered(f"{program} {arguments[0]} did not end in {COMMAND_SECONDS_MAX:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        said = complaint.decode(errors="replace").strip()[:DETAIL_LENGTH_MAX]
        raise SwitchRefused(f"{program} {' '.join(arguments)}: {said}")
    return printed.decode(errors="replace")


async def read_json(program: str, namespace: str | None, arguments: Sequence[str]) -> list[JsonObject]:
    """The objects that the program prints as JSON. Raises as `run`, and SwitchUnanswered for anything else."""
    printed = await run(program, namespace, ["-j", *arguments])
    try:
        found = json.loads(printed or "[]")
    except ValueError:
        raise SwitchUnanswered(f"{program} {' '.join(arguments)} printed no JSON") from None
    if not (isinstance(found, list) and all(isinstance(one, dict) for one in found)):
        raise SwitchUnanswered(f"{program} {' '.join(arguments)} printed another JSON than a list of objects")
    # `ip` of some versions prints an empty object for what does not match.
    return [one for one in found if one]
