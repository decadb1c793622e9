"""Acts (a) and (b): one allocation from request to proven release, with a login in between."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from uuid import UUID

from berth.client import Allocation, TimelineEntry
from berth.local.demo.act import Act, Say
from berth.local.demo.ssh_probe import is_gone, is_refused, run_there
from berth.local.demo.stage import Stage
from node_agent.key_set import read_public_keys, root_keys
from orchestrator.wipes.certificate import CertificateRefused, read_certificate, verify_certificate

WAIT_SECONDS = 60.0
PATH = ["requested", "provisioning", "active", "releasing", "released"]
GREETING = "berth was here"


async def one_life(
    stage: Stage, act: Act, say: Say, *, sku: str, gpus: int, region: str, wait_seconds: float = WAIT_SECONDS
) -> Act:
    """Create, wait, log in, release, prove."""
    player = stage.players[0]
    async with stage.client(player) as berth, stage.admin() as admin:
        posted, began = datetime.now(UTC), time.monotonic()
        made = await berth.create_allocation(sku=sku, gpus=gpus, region=region, ssh_key_ids=[player.ssh_key_id])
        act.create_ms.append((time.monotonic() - began) * 1000)
        say(f"{made.allocation_id}: {gpus} GPUs of {sku} in {region} requested")
        active = await berth.wait_for(made.allocation_id, {"active"}, wait_seconds)
        act.active_ms.append(_milliseconds(posted, active))
        say(f"active on {active.node}, slots {active.slots}, after {act.active_ms[-1]:.0f} ms")
        act.check("it holds as many slots as it asked for", len(set(active.slots)) == gpus)
        await _log_in(stage, act, say, active)

        await berth.release_allocation(made.allocation_id)
        ended = await berth.wait_for(made.allocation_id, {"released"}, wait_seconds)
        proof = ended.release_result or {}
        act.figures["proof"] = {k: proof.get(k) for k in ("released", "hard_stopped", "wiped", "leases_released")}
        say(f"released; proof {act.figures['proof']}")
        proven = all(proof.get(item) is True for item in ("released", "wiped", "leases_released"))
        act.check("release proves the wipe and the returned leases", proven)
        document = await berth.get_wipe_certificate(made.allocation_id)
        _verify_wipe(stage, act, say, made.allocation_id, document.model_dump_json().encode())
        assert active.connection is not None
        act.check("its SSH server is gone", await is_gone(active.connection, stage.ssh_key))
        node = await admin.get_node(str(active.node))
        act.check("its slots are free again", node.free_slots == node.slot_count)

        timeline = [entry async for entry in berth.iterate_timeline(made.allocation_id)]
        for entry in timeline:
            say(_line(entry, timeline[0].at))
        steps = [entry.to for entry in timeline if entry.kind == "transition"]
        act.check("its timeline is requested, provisioning, active, releasing, released", steps == PATH)
        phases = [entry.phase for entry in timeline if entry.kind == "progress"]
        act.check("the node reported its phases", len(phases) >= 3)
        act.figures["timeline_entries"] = len(timeline)
    return act


def _verify_wipe(stage: Stage, act: Act, say: Say, allocation_id: UUID, document: bytes) -> None:
    """Verify the wipe certificate as its tenant would, with the root's public key alone."""
    roots = root_keys(read_public_keys(stage.stack.authority.root_keys))
    try:
        found = verify_certificate(read_certificate(document), allocation_id, roots)
    except CertificateRefused as refused:
        say(f"wipe certificate refused: {refused}")
        act.check("its wipe certificate verifies offline", False)
        return
    wiped = ", ".join(f"{device.kind} {device.method} (level {device.level})" for device in found.predicate.devices)
    say(f"wipe certificate {found.link.number} of its node: {wiped}")
    act.check("its wipe certificate verifies offline", found.predicate.verdict == "wiped")


def _milliseconds(posted: datetime, active: Allocation) -> float:
    """From sending the request to `active`; both clocks are this machine's."""
    assert active.active_at is not None
    return (active.active_at - posted).total_seconds() * 1000


async def _log_in(stage: Stage, act: Act, say: Say, active: Allocation) -> None:
    act.check("it says where to log in", active.connection is not None)
    assert active.connection is not None
    where = f"{active.connection.user}@{active.connection.host}:{active.connection.port}"
    output = await run_there(active.connection, stage.ssh_key, f"echo {GREETING}")
    say(f"ssh {where} with the tenant's key says: {output.strip()}")
    act.check("the tenant's key logs in", GREETING in output)
    refused = await is_refused(active.connection, stage.strangers_key)
    say(f"ssh {where} with another key: {'refused' if refused else 'LET IN'}")
    act.check("another key is refused", refused)


def _line(entry: TimelineEntry, began: datetime) -> str:
    what = f"-> {entry.to}" if entry.to else (entry.phase or entry.code or entry.kind)
    after = (entry.at - began).total_seconds() * 1000
    return f"  +{after:6.0f} ms  {entry.actor.kind:<7} {what} {entry.detail or ''}".rstrip()
