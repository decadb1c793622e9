"""Proofs of a running release, in the journal before what they prove can be looked at no longer.

A release that is interrupted runs again from its start. What was wiped and removed by then is not there to be proven again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from node_agent.drivers.contract import Phase, Plan, Progress
from node_agent.journal import Journal
from node_agent.journal_records import Wiped
from node_agent.protocol import ReleaseResult
from node_agent.wiping.devices import DeviceWipe


class WipeProofs:
    """The proofs of this agent's releases. Raises JournalUnwritable where the journal does."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def keeping(self, plan: Plan[ReleaseResult], task_id: UUID) -> Plan[ReleaseResult]:
        """The plan with phases that end only after the proofs that they gave are in the journal."""

        async def kept(phase: Phase, progress: Progress) -> str:
            detail = await phase.run(progress)
            await self._keep(task_id, plan.result())
            return detail

        return replace(plan, phases=[Phase(phase.name, partial(kept, phase)) for phase in plan.phases])

    def completed(self, result: ReleaseResult, task_id: UUID) -> ReleaseResult:
        """The result, with the proofs of earlier runs of the same task for devices that are no longer there."""
        devices = _by_name(result.evidence.get("devices", ()))
        missing = [proof for name, proof in self._kept(task_id).items() if name not in devices]
        if not missing:
            return result
        return result.model_copy(
            update={"evidence": {**result.evidence, "was_there": True, "devices": [*devices.values(), *missing]}}
        )

    async def _keep(self, task_id: UUID, result: ReleaseResult) -> None:
        known = self._kept(task_id)
        proven = {
            name: proof for name, proof in _by_name(result.evidence.get("devices", ())).items() if proof["proven"]
        }
        if proven.keys() - known.keys():
            devices = [DeviceWipe.model_validate(proof) for proof in {**known, **proven}.values()]
            self._journal.append(Wiped(task_id=task_id, devices=devices))
            await self._journal.sync()

    def _kept(self, task_id: UUID) -> dict[str, dict[str, Any]]:
        task = self._journal.state.tasks.get(task_id)
        return _by_name(proof.model_dump(mode="json") for proof in (task.wiped if task else ()))


def _by_name(proofs: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {proof["device"]: proof for proof in proofs}
