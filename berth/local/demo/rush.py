"""Act (c): many creates at once for more GPUs than exist."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from berth.client import Allocation, AsyncClient, CreatedAllocation, SkuUnavailable
from berth.local import fleet
from berth.local.demo.act import Act, Say
from berth.local.demo.stage import Stage

CREATES = 64
WAIT_SECONDS = 90.0


async def rush(stage: Stage, act: Act, say: Say, *, creates: int = CREATES, wait_seconds: float = WAIT_SECONDS) -> Act:
    """Send creates for one GPU each; exactly the capacity is placed, the rest is refused with a reason."""
    player = stage.players[1]
    async with stage.client(player) as berth, stage.admin() as admin:
        nodes = [node async for node in admin.iterate_nodes() if node.shape == "gpu_slice"]
        capacity = sum(node.free_slots for node in nodes)
        say(f"{creates} creates at once for 1 GPU each; {capacity} are free in {len(fleet.REGIONS)} regions")
        posted = datetime.now(UTC)
        regions = list(fleet.REGIONS)
        asked = [_ask(berth, act, regions[n % len(regions)], player.ssh_key_id) for n in range(creates)]
        answers = await asyncio.gather(*asked)
        made = [answer for answer in answers if isinstance(answer, CreatedAllocation)]
        refused = Counter(answer.reason for answer in answers if isinstance(answer, SkuUnavailable))
        say(f"{len(made)} placed, refused: {dict(refused)}")
        act.check("more was asked for than exists", capacity < creates)
        act.check("exactly the capacity was placed", len(made) == capacity)
        act.check("the rest was refused as busy now", refused == Counter({"busy_now": creates - capacity}))

        waits = [berth.wait_for(one.allocation_id, {"active"}, wait_seconds) for one in made]
        active = await asyncio.gather(*waits)
        act.active_ms += [(one.active_at - posted).total_seconds() * 1000 for one in active if one.active_at]
        overlaps = count_overlaps(active)
        act.check("no slot has two holders", overlaps == 0)
        say(f"all {len(active)} active; slots held twice: {overlaps}")
        await asyncio.gather(*(berth.release_allocation(one.allocation_id) for one in made))
        await asyncio.gather(*(berth.wait_for(one.allocation_id, {"released"}, wait_seconds) for one in made))
        nodes = [node async for node in admin.iterate_nodes() if node.shape == "gpu_slice"]
        act.check("everything is free again", sum(node.free_slots for node in nodes) == capacity)
        act.figures |= {
            "creates": creates, "capacity": capacity, "placed": len(made), "refused": dict(refused), "overlaps": overlaps,
        }  # fmt: skip
    return act


async def _ask(berth: AsyncClient, act: Act, region: str, ssh_key_id: UUID) -> CreatedAllocation | SkuUnavailable:
    began = time.monotonic()
    try:
        return await berth.create_allocation(sku=fleet.SLICE_SKU, gpus=1, region=region, ssh_key_ids=[ssh_key_id])
    except SkuUnavailable as refusal:
        return refusal
    finally:
        act.create_ms.append((time.monotonic() - began) * 1000)


def count_overlaps(held: Sequence[Allocation]) -> int:
    """How many (node, slot) pairs are held by more than one of these allocations, which all live now."""
    holders = Counter((one.node, slot) for one in held for slot in one.slots)
    return sum(1 for count in holders.values() if count > 1)
