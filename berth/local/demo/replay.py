"""Act (d): jobs of a real cluster, sent by three tenants through the public API."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from datetime import UTC, datetime

from berth.client import AsyncClient, CreatedAllocation, SkuUnavailable
from berth.local import fleet
from berth.local.demo.act import Act, Say
from berth.local.demo.stage import Player, Stage
from berth.local.demo.trace import Job, read_jobs

SPAN_SECONDS = 25.0
# A tenant submits so many at once and queues the rest itself, as a scheduler would: thousands of creates that are
# refused because everything is busy would keep a small machine from finishing what runs.
JOBS_IN_FLIGHT_MAX = 10
WAIT_SECONDS = 120.0
BUSY_SECONDS_MAX = 90.0
BUSY_PAUSE_SECONDS_FIRST, BUSY_PAUSE_SECONDS_MAX = 0.2, 2.0
PROGRESS_SECONDS = 5.0


async def replay(stage: Stage, act: Act, say: Say) -> Act:
    """Every job ends placed and released, or refused with a reason; jobs larger than any node are refused as such."""
    jobs = read_jobs(SPAN_SECONDS)
    say(f"{len(jobs)} jobs of the Philly trace by {len(stage.players)} tenants, arrivals within {SPAN_SECONDS:.0f} s")
    ends: Counter[str] = Counter()
    too_large: Counter[str] = Counter()
    clients = [stage.client(player) for player in stage.players]
    rooms = [asyncio.Semaphore(JOBS_IN_FLIGHT_MAX) for _ in stage.players]
    began = time.monotonic()

    async def play(job: Job) -> None:
        turn = job.number % len(clients)
        await asyncio.sleep(max(0.0, job.arrives_seconds - (time.monotonic() - began)))
        async with rooms[turn]:
            end = await _one_job(clients[turn], stage.players[turn], job, act)
        ends[end] += 1
        if job.gpus > fleet.SLOTS:
            too_large[end] += 1

    async def progress() -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            say(f"  after {time.monotonic() - began:3.0f} s: {sum(ends.values())} of {len(jobs)} jobs ended")

    telling = asyncio.create_task(progress())
    try:
        await asyncio.gather(*(play(job) for job in jobs))
    finally:
        telling.cancel()
        for client in clients:
            await client.close()
    say(f"ended after {time.monotonic() - began:.1f} s: {dict(ends)}")
    larger = sum(1 for job in jobs if job.gpus > fleet.SLOTS)
    known = {
        "released",
        *(f"refused: {reason}" for reason in ("no_node_large_enough", "only_fragments_left", "busy_now")),
    }
    act.check("at least 300 jobs were sent", len(jobs) >= 300)
    act.check(
        "every job ended placed and released, or refused with a reason",
        sum(ends.values()) == len(jobs) and set(ends) <= known,
    )
    act.check(
        "jobs larger than any node were refused as such",
        too_large == Counter({"refused: no_node_large_enough": larger}),
    )
    act.check("the rest was mostly placed", ends["released"] >= (len(jobs) - larger) * 0.9)
    act.figures |= {"jobs": len(jobs), "ends": dict(ends), "larger_than_any_node": larger}
    return act


async def _one_job(berth: AsyncClient, player: Player, job: Job, act: Act) -> str:
    """Send one job and see it through; answers how it ended."""
    patience_until = time.monotonic() + BUSY_SECONDS_MAX
    for attempt in itertools.count():
        posted, began = datetime.now(UTC), time.monotonic()
        try:
            made: CreatedAllocation = await berth.create_allocation(
                sku=fleet.SLICE_SKU, gpus=job.gpus, region=list(fleet.REGIONS)[(job.number + attempt) % 2],
                ssh_key_ids=[player.ssh_key_id], name=f"philly-{job.number}", labels={"trace": "philly"},
            )  # fmt: skip
        except SkuUnavailable as refusal:
            reason = refusal.reason
            if reason == "no_node_large_enough" or began > patience_until:
                return f"refused: {reason}"
            pause = min(BUSY_PAUSE_SECONDS_MAX, BUSY_PAUSE_SECONDS_FIRST * 1.5**attempt)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            continue
        act.create_ms.append((time.monotonic() - began) * 1000)
        active = await berth.wait_for(made.allocation_id, {"active"}, WAIT_SECONDS)
        if active.active_at is not None:
            act.active_ms.append((active.active_at - posted).total_seconds() * 1000)
        await asyncio.sleep(job.life_seconds)
        await berth.release_allocation(made.allocation_id)
        return (await berth.wait_for(made.allocation_id, {"released"}, WAIT_SECONDS)).status
    raise AssertionError("unreachable")
