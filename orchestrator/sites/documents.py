"""Sites, their agents and BMCs as operators see them: the JSON of docs/reference/http-api.md. Nothing sealed is part of it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from berth.process.json_objects import JsonObject
from berth.process.sealed_passwords import fingerprint
from orchestrator.allocations.store.rows import allocation_body, read_allocation
from orchestrator.database.transactions import Reading
from orchestrator.nodes.deploy_systems.root_disks import MEMBER, RootDiskHint
from orchestrator.nodes.deploy_systems.run_store import DeployRun
from orchestrator.sites.findings import next_step_of
from orchestrator.sites.store.adoptions import StoredAdoption
from orchestrator.sites.store.agents import SiteAgent
from orchestrator.sites.store.bmc_tasks import BmcTask
from orchestrator.sites.store.bmcs import Bmc
from orchestrator.sites.store.sites import Site
from orchestrator.times import rfc3339, wait_document


def site_document(site: Site, agents: Sequence[SiteAgent]) -> JsonObject:
    """The JSON of a site."""
    lease = None
    if site.lease_until is not None:
        lease = {"agent_id": str(site.lease_agent), "fence": site.lease_fence, "until": rfc3339(site.lease_until)}
    return {
        "id": str(site.id),
        "name": site.name,
        "recovery_key": site.recovery_key.hex(),
        "recovery_key_fingerprint": fingerprint(site.recovery_key),
        "created_at": rfc3339(site.created_at),
        "machines": site.machines,
        "lease": lease,
        "agents": [agent_document(agent) for agent in agents],
    }


def agent_document(agent: SiteAgent) -> JsonObject:
    """The JSON of an agent."""
    key = agent.sealing_key
    return {
        "id": str(agent.id),
        "name": agent.name,
        "state": agent.state.value,
        "epoch": agent.epoch,
        "hardware_id": agent.hardware_id,
        "enrolled_at": rfc3339(agent.enrolled_at),
        "identity_conflict_at": rfc3339(agent.identity_conflict_at),
        "sealing_key": None if key is None else key.hex(),
        "sealing_key_fingerprint": None if key is None else fingerprint(key),
        "agent_version": agent.agent_version,
        "last_seen_at": rfc3339(agent.last_seen_at),
        "created_at": rfc3339(agent.created_at),
    }


def bmc_document(bmc: Bmc, task: BmcTask | None) -> JsonObject:
    """The JSON of a BMC, with its newest task."""
    return {
        "node_id": str(bmc.node_id),
        "site_id": str(bmc.site_id),
        "url": bmc.url,
        "certificate_sha256": bmc.certificate_sha256.hex(),
        "username": bmc.username,
        "system_id": bmc.system_id,
        "generation": bmc.generation,
        "pending_generation": bmc.pending_generation,
        "recipients": [str(one) for one in bmc.recipients],
        "changed_at": rfc3339(bmc.changed_at),
        "changed_by": bmc.changed_by,
        "power_state": bmc.power_state,
        "inventory": bmc.inventory,
        "looked_at": rfc3339(bmc.looked_at),
        "answered_at": rfc3339(bmc.answered_at),
        "silent_because": bmc.silent_because,
        "rotates_at_release": bmc.rotates_at_release,
        "console_host_key": bmc.console_host_key,
        "console_shared": bmc.console_shared,
        "task": None if task is None else task_document(task),
    }


def task_document(task: BmcTask) -> JsonObject:
    """The JSON of a task about a BMC."""
    return {
        "id": str(task.id),
        "kind": task.kind.value,
        "requested_at": rfc3339(task.requested_at),
        "requested_by": task.requested_by,
        "issued_at": rfc3339(task.issued_at),
        "dispatched_at": rfc3339(task.dispatched_at),
        "ended_at": rfc3339(task.ended_at),
        "outcome": None if task.outcome is None else task.outcome.value,
        "failure": task.failure,
        "power_state": task.power_state,
        "waits": wait_document(task.waits_for, task.waits_since, task.waits_until),
    }


def run_document(run: DeployRun, wipe: JsonObject | None = None) -> JsonObject:
    """The JSON of a run of a deploy system; `wipe`: what its wipe has reported."""
    return {
        "id": str(run.id),
        "node_id": str(run.node_id),
        "site_id": str(run.site_id),
        "kind": run.kind.value,
        "step": run.step.value,
        "smbios_uuid": run.medium["smbios_uuid"],
        "network": run.medium["network"],
        "root_disk": None if MEMBER not in run.medium else RootDiskHint.of(run.medium).model_dump(mode="json"),
        "allocation_id": None if run.allocation_id is None else str(run.allocation_id),
        "requested_at": rfc3339(run.requested_at),
        "requested_by": run.requested_by,
        "stop_requested_at": rfc3339(run.stop_requested_at),
        "stop_requested_by": run.stop_requested_by,
        "deploy_epoch": run.deploy_epoch,
        "ended_at": rfc3339(run.ended_at),
        "outcome": None if run.outcome is None else run.outcome.value,
        "failure": run.failure,
        "wipe": wipe,
        "isolation": run.isolation,
        "findings": [{**finding, "next_step": next_step_of(finding["code"])} for finding in run.findings],
        "waits": wait_document(run.waits_for, run.waits_since, run.waits_until),
    }


async def adoption_document(reading: Reading, node_id: UUID, stored: StoredAdoption) -> JsonObject:
    """The JSON of an adoption, with its allocation. Certificates and URLs of the medium are not part of it."""
    row = await read_allocation(reading, stored.allocation_id, None)
    assert row is not None, "an allocation with a claim can be read"
    recorded, medium = stored.recorded, stored.recorded["medium"]
    return {
        "node_id": str(node_id),
        "allocation": allocation_body(row),
        "adopted_at": rfc3339(stored.adopted_at),
        "adopted_by": recorded["by"],
        "machine": recorded["machine"],
        "smbios_uuid": medium["smbios_uuid"],
        "macs": medium["macs"],
        "network": medium["network"],
        "gaps": recorded["gaps"],
        "inspected": stored.is_inspected,
    }
