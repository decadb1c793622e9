"""All acts in order, and the report."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import asyncssh
import psycopg

from berth.cli.deployment.stream_check import StreamUnreachable, check_stream
from berth.client import BerthError
from berth.local import fleet
from berth.local.demo.act import Act, Say, spread
from berth.local.demo.interruption import run_interruptibly
from berth.local.demo.one_life import one_life
from berth.local.demo.replay import replay
from berth.local.demo.rush import rush
from berth.local.demo.stage import Stage, set_stage
from berth.local.stack import Stack
from berth.local.state import StateDirectory, write_whole
from berth.process.json_objects import JsonObject
from orchestrator.verification import Verdict, run_checks

REPORT = "demo-report.json"
GUEST_CREATES = 16
GUEST_WAIT_SECONDS = 300.0
"""Eight guests at once take a minute under emulation on an idle machine."""
FORESEEN = (BerthError, asyncssh.Error, OSError, psycopg.Error, StreamUnreachable, TimeoutError)


def play(stack: Stack, say: Say) -> list[Act]:
    """Play every act; one that stops short is recorded as failed with the reason, and the next begins."""
    stage = set_stage(stack)
    acts: list[Act] = []

    def act(letter: str, title: str, run: Callable[[Act], Coroutine[Any, Any, Act]]) -> None:
        say(f"({letter}) {title}")
        playing = Act(letter, title)
        began = time.monotonic()
        try:
            run_interruptibly(run(playing))
        except FORESEEN as error:
            playing.check(f"it ran to its end (stopped by: {error or type(error).__name__})", False)
        playing.seconds = time.monotonic() - began
        acts.append(playing)

    if stack.options.guests is not None:
        life = partial(one_life, sku=fleet.SLICE_SKU, gpus=2, region="eu-1", wait_seconds=GUEST_WAIT_SECONDS)
        act("a", "one slice of a node, a guest of QEMU", lambda a: life(stage, a, say))
        creates = partial(rush, creates=GUEST_CREATES, wait_seconds=GUEST_WAIT_SECONDS)
        act("c", f"{GUEST_CREATES} creates at once for more slots than exist", lambda a: creates(stage, a, say))
        act("e", "berth verify: the promises, on this database", lambda a: _verify(stage, a, say))
        return acts
    act("a", "one slice of a node", lambda a: one_life(stage, a, say, sku=fleet.SLICE_SKU, gpus=2, region="eu-1"))
    act("b", "one whole node", lambda a: one_life(stage, a, say, sku=fleet.METAL_SKU, gpus=fleet.SLOTS, region="us-1"))
    act("c", "64 creates at once for more GPUs than exist", lambda a: rush(stage, a, say))
    act("d", "jobs of a real cluster", lambda a: replay(stage, a, say))
    act("e", "berth verify: the promises, on this database", lambda a: _verify(stage, a, say))
    return acts


async def _verify(stage: Stage, act: Act, say: Say) -> Act:
    endpoints = stage.stack.endpoints
    verdicts = await asyncio.to_thread(run_checks, endpoints.database_url)
    stream = await asyncio.to_thread(check_stream, endpoints.database_url, endpoints.nats_url)
    for verdict in [*verdicts, stream]:
        say(f"{verdict.promise}: {'kept' if verdict.kept else 'VIOLATED'}, {verdict.title} ({verdict.checked} checked)")
        for violation in verdict.violations:
            say(f"    {violation}")
        act.check(f"{verdict.promise}: {verdict.title}", verdict.kept)
    act.figures |= {
        "events_published": stream.checked_through,
        "versions_contiguous": _by_promise(verdicts, "P3").kept and stream.kept,
        "overlaps_found": len(_by_promise(verdicts, "P1").violations),
    }
    return act


def _by_promise(verdicts: list[Verdict], promise: str) -> Verdict:
    return next(verdict for verdict in verdicts if verdict.promise == promise)


def write_report(state: StateDirectory, acts: list[Act], seconds: float) -> JsonObject:
    """Write demo-report.json and answer its content."""
    figures = {key: value for act in acts for key, value in act.figures.items()}
    report = {
        "held": bool(acts) and all(act.held for act in acts),
        "seconds": round(seconds, 1),
        "create_ms": spread([value for act in acts for value in act.create_ms]),
        "post_to_active_ms": spread([value for act in acts for value in act.active_ms]),
        "events_published": figures.get("events_published"),
        "versions_contiguous": figures.get("versions_contiguous"),
        "overlaps_found": figures.get("overlaps_found"),
        "acts": [act.as_data() for act in acts],
    }
    write_whole(state.path / REPORT, json.dumps(report, indent=2) + "\n")
    return report
