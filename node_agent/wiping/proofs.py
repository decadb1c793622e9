"""Proofs of releases, in the journal before what they prove can be looked at no longer.

A release that is interrupted runs again from its start, and one whose report did not count is ordered again. What was wiped
and removed by then is not there to be proven again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.drivers.contract import Phase, Plan, Progress
from node_agent.journal import Journal
from node_agent.journal_records import Wiped
from node_agent.protocol import ReleaseResult
from node_agent.wiping.devices import DeviceWipe


class WipeProofs:
    """The proofs of this agent's releases. Raises JournalUnwritable where the journal does."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def keeping(self, plan: Plan[ReleaseResult], allocation_id: UUID) -> Plan[ReleaseResult]:
        """The plan with phases that end only after the proofs that they gave are in the journal."""

        async def kept(phase: Phase, progress: Progress) -> str:
            detail = await phase.run(progress)
            await self._keep(allocation_id, plan.result())
            return detail

        return replace(plan, phases=[Phase(phase.name, partial(kept, phase)) for phase in plan.phases])

    def completed(self, result: ReleaseResult, allocation_id: UUID) -> ReleaseResult:
        """The result, with the proofs of earlier releases of the allocation for devices that are no longer there."""
        devices = _by_name(result.evidence.get("devices", ()))
        missing = [proof for name, proof in self._kept(allocation_id).items() if name not in devices]
        if not missing:
            return result
        return result.model_copy(update={"evidence": {**result.evidence, "devices": [*devices.values(), *missing]}})

    async def _keep(self, allocation_id: UUID, result: ReleaseResult) -> None:
        known = self._kept(allocation_id)
        found = _by_name(result.evidence.get("devices", ()))
        proven = {name: proof for name, proof in found.items() if proof["proven"]}
        if proven.keys() - known.keys():
            devices = [DeviceWipe.model_validate(proof) for proof in {**known, **proven}.values()]
            self._journal.append(Wiped(allocation_id=allocation_id, devices=devices))
            await self._journal.sync()

    def _kept(self, allocation_id: UUID) -> dict[str, JsonObject]:
        record = self._journal.state.wiped.get(allocation_id)
        return {} if record is None else _by_name(proof.model_dump(mode="json") for proof in record.devices)


def _by_name(proofs: Iterable[JsonObject]) -> dict[str, JsonObject]:
    return {proof["device"]: proof for proof in proofs}
