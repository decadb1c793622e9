"""What became of an update of firmware, and which versions the next release compares with. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from node_agent.wire.deploy_tasks import FirmwareVersion
from node_agent.wire.firmware import FirmwareReading, FirmwareResult
from orchestrator.maintenance.states import WindowTaskState
from orchestrator.nodes.firmware.rules import BIOS, BMC, INVENTORY, Reading
from orchestrator.nodes.maintenance_tasks.rules import Verdict
from orchestrator.sites.states import BmcTaskOutcome
from orchestrator.sites.store.firmware_updates import EndedUpdate


def conclude(ended: EndedUpdate) -> Verdict:
    """What became of the update: completed only with the ordered version read back of each target."""
    evidence = _evidence(ended.result) if ended.result is not None else None
    if ended.outcome is BmcTaskOutcome.COMPLETED:
        after = None if ended.result is None else ended.result.after
        read = {} if after is None else {entry.id: entry.version for entry in after.targets}
        if any(read.get(target) != ended.order.version for target in ended.order.targets):
            what = f"bad_report: the report does not state {ended.order.version} of each target"
            return Verdict(WindowTaskState.FAILED, what, evidence)
        return Verdict(WindowTaskState.COMPLETED, None, evidence)
    failure = ended.failure or "no_report: the task of the BMC is gone"
    if not may_be_sent(ended):
        return Verdict(WindowTaskState.NOT_RUN, failure, evidence)
    is_known = ended.outcome is BmcTaskOutcome.FAILED
    return Verdict(WindowTaskState.FAILED if is_known else WindowTaskState.INTERRUPTED, failure, evidence)


def may_be_sent(ended: EndedUpdate) -> bool:
    """Whether the BMC may have taken the update. Not if no process was to send it, or the one that was says that it did not.

    It may if the task is gone: nothing is known of it.
    """
    if ended.outcome is None:
        return True
    if ended.progress is None:
        return False
    result = ended.result
    return result is None or result.sent or result.sender != ended.progress.sender


def _evidence(result: FirmwareResult) -> str:
    """Versions before and after."""
    before, after = result.before or FirmwareReading(targets=[]), result.after or FirmwareReading(targets=[])
    if result.already:
        return f"nothing was sent: {', '.join(f'{entry.id} has {entry.version} already' for entry in before.targets)}"
    now = {entry.id: entry.version for entry in after.targets}
    parts = [
        f"{entry.id}: {entry.version or 'none'} before, {now.get(entry.id, 'not read')} after"
        for entry in before.targets
    ]
    parts += [
        f"the {name} states {is_now}, and {was} before"
        for name, was, is_now in (("BIOS", before.bios, after.bios), ("BMC", before.bmc, after.bmc))
        if was and is_now and was != is_now
    ]
    return "; ".join([*parts, *(f"{one} restarted" for one in result.restarted)])


def carried_over(known: Reading, result: FirmwareResult) -> Reading:
    """What the next release compares with: each target as it was read back; BIOS and BMC if the update changed what they state.

    Everything else stays as it was known: a change that the update did not make is still found.
    """
    before, after = result.before, result.after
    if before is None or after is None:
        return known
    targets = {entry.name or entry.id: entry.version for entry in after.targets}
    bios = after.bios if before.bios and after.bios and before.bios != after.bios else None
    bmc = after.bmc if before.bmc and after.bmc and before.bmc != after.bmc else None
    return Reading(
        None if known.machine is None else [_with(one, BIOS, bios) for one in known.machine],
        None if known.bmc is None else _unique([_with(_target(one, targets), BMC, bmc) for one in known.bmc]),
    )


def _with(one: FirmwareVersion, component: str, version: str | None) -> FirmwareVersion:
    return one if version is None or one.component != component else one.model_copy(update={"version": version})


def _target(one: FirmwareVersion, targets: dict[str, str]) -> FirmwareVersion:
    return _with(one, INVENTORY, targets.get(one.unit))


def _unique(found: Sequence[FirmwareVersion]) -> list[FirmwareVersion]:
    """Entries of one name become one when they have one version."""
    return list({one.model_dump_json(): one for one in found}.values())
