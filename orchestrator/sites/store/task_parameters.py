"""What an agent of a site needs for a task about a BMC: its address, and the passwords that are sealed to agents."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from node_agent.wire.sites import BmcPassword, BmcTaskParameters
from orchestrator.database.transactions import Transaction
from orchestrator.sites.store import bmcs
from orchestrator.sites.store.bmcs import Bmc


async def parameters_of(tx: Transaction, bmc: Bmc, keys: Mapping[UUID, bytes]) -> BmcTaskParameters:
    """The BMC for agents with these sealing keys. The recovery key's copies are not sent."""
    stored = await bmcs.sealed_passwords(tx, bmc.node_id)
    generations = [bmc.generation, *([] if bmc.pending_generation is None else [bmc.pending_generation])]
    # Without a copy for an agent the recovery key's stays: the agent refuses the task by name of what is missing.
    sealed = {one: {to: text for to, text in stored.get(one, {}).items() if to in keys} for one in generations}
    passwords = [
        BmcPassword(generation=one, sealed=sealed[one] or stored.get(one, {})) for one in generations if stored.get(one)
    ]
    return BmcTaskParameters(
        site_id=bmc.site_id, url=bmc.url, certificate_sha256=bmc.certificate_sha256.hex(), username=bmc.username,
        system_id=bmc.system_id, passwords=passwords,
    )  # fmt: skip
