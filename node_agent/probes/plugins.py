"""An operator's own checks: executables of one directory, each with a deadline and a bounded output.

A plugin prints one JSON object: `{"verdict": "healthy" | "fault" | "unknown", "evidence": "...", "gpu": "0000:0f:00.0"}`.
Whatever else it does is a result `unknown` that says why; see docs/reference/fleet/probes.md.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from node_agent.discovery.children import NoAnswer, require_success, run_bounded
from node_agent.discovery.reading import Gaps, printable
from node_agent.wire.fields import Closed, first_error
from node_agent.wire.health import EVIDENCE_MAX, PLUGINS_MAX, PluginResult, Verdict
from node_agent.wire.topology import NAME_MAX, REASON_MAX, PciAddress

OUTPUT_BYTES_MAX = 64 * 1024
_AT_ONCE_MAX = 4
_NAME = re.compile(rf"^[a-z0-9][a-z0-9._-]{{0,{NAME_MAX - 1}}}$")


class PluginAnswer(Closed):
    """What a plugin prints. Evidence is cut at 1,000 characters."""

    verdict: Verdict
    evidence: Annotated[str, Field(max_length=OUTPUT_BYTES_MAX)] = ""
    gpu: PciAddress | None = None


async def run_plugins(
    directory: Path | None,
    environment: Mapping[str, str],
    seconds: float,
    gaps: Gaps,
    launcher: Sequence[str] = (),
) -> list[PluginResult] | None:
    """The result of each plugin, by name; None if no directory is set or it cannot be listed. `launcher` executes each."""
    if directory is None:
        return None
    try:
        names = _names_in(directory)
    except OSError as error:
        gaps.add("plugins", error.strerror or type(error).__name__)
        return None
    if len(names) > PLUGINS_MAX:
        gaps.add("plugins", f"{len(names)} were found, the first {PLUGINS_MAX} are run")
    places = asyncio.Semaphore(_AT_ONCE_MAX)

    async def run(name: str) -> PluginResult:
        async with places:
            return await run_plugin(directory / name, environment, seconds, launcher)

    return list(await asyncio.gather(*(run(name) for name in names[:PLUGINS_MAX])))


def _names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if _NAME.match(path.name))


async def run_plugin(
    path: Path, environment: Mapping[str, str], seconds: float, launcher: Sequence[str] = ()
) -> PluginResult:
    """Run one plugin. Never raises for what it does."""
    try:
        require_safe(path)
        code, output = await run_bounded((*launcher, str(path)), environment, seconds, OUTPUT_BYTES_MAX)
        require_success(code)
        answer = PluginAnswer.model_validate_json(output)
    except NoAnswer as error:
        return _unknown(path.name, str(error))
    except ValidationError as error:
        return _unknown(path.name, first_error(error, whole="output"))
    evidence = printable(answer.evidence)[:EVIDENCE_MAX]
    return PluginResult(name=path.name, verdict=answer.verdict, evidence=evidence, address=answer.gpu)


def require_safe(path: Path) -> None:
    """Raise NoAnswer for a file that another user of the node could replace by a program: the agent may run as root."""
    try:
        found, folder = path.stat(), path.resolve().parent.stat()
    except OSError as error:
        raise NoAnswer(f"cannot be run: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise NoAnswer("is not run: it is no file")
    for what, one in (("it", found), ("its folder", folder)):
        if one.st_uid not in (0, os.geteuid()) or one.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NoAnswer(f"is not run: other users may write to {what}")


def _unknown(name: str, why: str) -> PluginResult:
    return PluginResult(name=name, verdict="unknown", failure=printable(why)[:REASON_MAX] or "?")
