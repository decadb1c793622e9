"""Checks on machines: what their BMCs and disks saw, against what tenants and operators were promised. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from uuid import UUID

from tests.campaign.history import History
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.machines.records import Seen

LATE_SECONDS_MAX = 30.0
"""A worker that a fault has stopped concludes what is overdue only afterwards."""
OUTCOMES = frozenset({"completed", "failed", "stopped"})


def judge_machines(history: History) -> list[Violation]:
    """Every check on machines; nothing without machines."""
    return [
        *check_markers(history), *check_wipes(history), *check_tenants(history), *check_commands(history),
        *check_deploy_systems(history), *check_passwords(history), *check_runs(history), *check_left(history),
    ]  # fmt: skip


def check_markers(history: History) -> Iterator[Violation]:
    """Neither a deployment nor a tenant's system finds what another tenant wrote."""
    for machine, lines in history.machines.seen.items():
        for line in lines:
            if line["what"] != "tenant" and line.get("kind") != "deploy":
                continue
            for marker in line.get("markers", ()):
                if marker != line["allocation"]:
                    yield Violation(
                        "empty disk",
                        f"{machine}: {line['allocation']} finds the marker of {marker} at {line['at']:.1f}",
                    )


def check_wipes(history: History) -> Iterator[Violation]:
    """Between two holders the disk was wiped, and a certificate that verifies says so, of a time before the next one."""
    for machine, lines in history.machines.seen.items():
        holder: str | None = None
        wiped = True
        for line in lines:
            if line["what"] == "tenant":
                holder, wiped = line["allocation"], False
            if line["what"] != "work_done":
                continue
            if line["kind"] == "wipe":
                wiped = True
            if line["kind"] == "deploy" and holder not in (None, line["allocation"]):
                if not wiped:
                    yield Violation("wiped before the next", f"{machine}: {line['allocation']} follows {holder}")
                yield from _check_certificate(history, machine, str(holder), line)
    for certificate in history.machines.certificates.values():
        if certificate.problem is not None:
            yield Violation("certificate", f"{certificate.allocation_id}: {certificate.problem}")


def _check_certificate(history: History, machine: str, holder: str, following: Seen) -> Iterator[Violation]:
    """The certificate of the holder before a deployment, if the holder was released after it was active."""
    end = history.settled.get(UUID(holder))
    was_active = any(sight.state == "active" for sight in history.sights if sight.allocation_id == UUID(holder))
    if end is None or end.state != "released" or not was_active:
        return
    found = history.machines.certificates.get(UUID(holder))
    if found is None:
        yield Violation(
            "certificate", f"{machine}: {holder} was released without one, and {following['allocation']} follows"
        )
    elif found.ended_at is not None and found.ended_at > history.moment(following["at"]):
        yield Violation("certificate", f"{machine}: that of {holder} is of {found.ended_at}, after the next deployment")


@dataclass(frozen=True)
class Tenancy:
    """A time in which the system of an allocation ran."""

    machine: str
    allocation_id: UUID
    since: float
    until: float


def tenancies(machine: str, lines: list[Seen]) -> list[Tenancy]:
    """When systems of tenants ran on a machine, as its power and its disk say."""
    found = []
    running: Seen | None = None
    boot = 0
    for line in lines:
        # The system's line may come before that of the start which it is of: they are of two processes.
        is_end = line["what"] == "tenant" or (
            line["what"] == "power" and (line["state"] == "Off" or line["boot"] > boot)
        )
        if running is not None and is_end:
            found.append(Tenancy(machine, UUID(running["allocation"]), running["at"], line["at"]))
            running = None
        if line["what"] == "tenant":
            running, boot = line, line["boot"]
    if running is not None:
        found.append(Tenancy(machine, UUID(running["allocation"]), running["at"], inf))
    return found


def check_tenants(history: History) -> Iterator[Violation]:
    """The system of an allocation does not run on once a client read that it was released, nor starts again then."""
    released: dict[UUID, float] = {}
    for sight in history.sights:
        if sight.state == "released":
            released[sight.allocation_id] = min(sight.told, released.get(sight.allocation_id, inf))
    for machine, lines in history.machines.seen.items():
        for tenancy in tenancies(machine, lines):
            ended = released.get(tenancy.allocation_id, inf)
            if tenancy.until > ended:
                yield Violation(
                    "off when released",
                    f"{machine}: the system of {tenancy.allocation_id} ran until {tenancy.until:.1f}, released by {ended:.1f}",
                )


def check_commands(history: History) -> Iterator[Violation]:
    """In the order in which they were sent, commands have rising lease fences, and rising fences of tasks."""
    for machine, lines in history.machines.seen.items():
        commands = sorted(
            (_sent(line) for line in lines if line["what"] == "command" and line.get("attempt")),
            key=lambda sent: sent[0],
        )
        newest = (0, 0)
        for at, fences, what in commands:
            if fences[0] < newest[0] or fences[1] < newest[1]:
                yield Violation(
                    "no fenced command",
                    f"{machine}: {what} of lease and task {fences} was sent at {at:.1f} after {newest}",
                )
            newest = (max(newest[0], fences[0]), max(newest[1], fences[1]))


def _sent(line: Seen) -> tuple[float, tuple[int, int], str]:
    """When it was sent, its fences, and what it was."""
    lease, task, _, at = line["attempt"].split()
    return float(at), (int(lease), int(task)), line["line"]


def check_deploy_systems(history: History) -> Iterator[Violation]:
    """No deploy system works under an epoch older than one that has begun."""
    for machine, lines in history.machines.seen.items():
        newest = 0
        for line in lines:
            if line["what"] in ("work_begun", "work_done"):
                if line["epoch"] < newest:
                    yield Violation(
                        "no fenced deploy system", f"{machine}: {line['kind']} of epoch {line['epoch']} after {newest}"
                    )
                newest = max(newest, line["epoch"])


def check_passwords(history: History) -> Iterator[Violation]:
    """The newest two passwords of the store open the BMC, at every look."""
    for sentence in history.machines.strange_passwords:
        yield Violation("password known", sentence)


def check_runs(history: History) -> Iterator[Violation]:
    """Each run ended by its deadline, in an outcome with its reason; each quarantine has evidence; no task is open at the end."""
    for run in history.machines.runs.values():
        what = f"{run.machine}: the {run.kind} {run.id}"
        if run.outcome is None:
            yield Violation("run ends", f"{what} is still at {run.step}")
        elif run.outcome not in OUTCOMES or (run.outcome == "failed") is not bool(run.failure):
            yield Violation("run ends", f"{what} ended as {run.outcome} with {run.failure}")
        if run.late_seconds > LATE_SECONDS_MAX:
            yield Violation("run in time", f"{what} was open {run.late_seconds:.0f} s after its deadline")
    for found in history.machines.quarantines:
        if found.source == "release" and not found.evidence:
            yield Violation("quarantine with evidence", f"{found.machine}: {found.reason}")
    for task in history.machines.open_tasks:
        yield Violation("run ends", f"a task is open at the end: {task}")


def check_left(history: History) -> Iterator[Violation]:
    """At the end each machine is off, has no medium, and does not start from one."""
    for machine, bmc in history.machines.left.items():
        boots_medium = bmc["override"]["enabled"] != "Disabled" and bmc["override"]["target"] == "Cd"
        if bmc["power"] != "Off" or bmc["image"] is not None or boots_medium:
            yield Violation("left off", f"{machine}: {bmc['power']}, medium {bmc['image']}, boot {bmc['override']}")
