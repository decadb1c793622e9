"""The steps of a run: switch off, start a deploy system, have it do its task, end it. Pure.

After a deployment the machine is switched on from its disk, and the run completes once its system has proven its host key.
The ports of a machine that has some are moved to the provisioning segment before its deploy system starts, and to the tenant's
before the tenant's system does; each is proven before the next step. A run that switches a machine whose ports are not proven to
be in the tenant's segment ends what may run there first, and moves them.
A run that switches a rented machine for its tenant has no deploy system: it commands the power alone. A rescue takes the medium
from the running deploy system, hands it over to the tenant, and completes once its SSH server has proven its host key: the next
run of the machine ends it.
A run that has permitted a deploy system always goes through the step `end`, whatever went wrong: it switches the machine off
and takes the medium away. After a proven wipe for a release the password of the BMC is rotated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HISTORY_MAX: Final = 20
"""Runs that are kept of each node."""
RUN_SECONDS_MAX: Final = 1_800
"""Life of the token, how long a hello is waited for, and how long an inspection or the preparation of a rescue may take."""
WIPE_SECONDS_MAX: Final = 604_800
"""Of any number of disks, and of any size."""
SITE_STEP_SECONDS_MAX: Final = 2_400.0
"""Longer than a task of the site can be open: requested for 600 s, and 900 s with 60 s for its report."""
END_ATTEMPTS_MAX: Final = 3
ROTATION_ATTEMPTS_MAX: Final = 3
PORT_ATTEMPTS_MAX: Final = 3
"""A move may be repeated: of what is as ordered already the fence alone is written."""


class RunKind(StrEnum):
    """What the deploy system of a run does; or how a run without one switches the machine."""

    INSPECT = "inspect"
    WIPE = "wipe"
    DEPLOY = "deploy"
    STOP = "stop"
    START = "start"
    REBOOT = "reboot"
    RESCUE = "rescue"
    ATTEST = "attest"


SWITCHING: Final = frozenset({RunKind.STOP, RunKind.START, RunKind.REBOOT})
"""Kinds without a deploy system."""


_GIB: Final = 2**30
_WIPE_SECONDS: Final = 960
"""Two searches for disks, UEFI variables, the TPM, and the report."""
_DISK_SECONDS: Final = 5_520
"""Markers, one method, the overwrite, and a read-back after each; and for each GiB that they write, and that they read."""
_WRITTEN_GIB_SECONDS: Final = 120
_READ_GIB_SECONDS: Final = 120
_READ_BYTES_MAX: Final = 4 * _GIB


def wipe_seconds(sizes_bytes: Iterable[int]) -> int:
    """How long the wipe of disks of these sizes may take, one after another, at the deadlines of its steps for one method."""
    seconds: float = _WIPE_SECONDS
    for size in sizes_bytes:
        read = min(size, _READ_BYTES_MAX)
        seconds += _DISK_SECONDS + (size * _WRITTEN_GIB_SECONDS + read * _READ_GIB_SECONDS) / _GIB
    return min(WIPE_SECONDS_MAX, int(seconds) + 1)


_DEPLOY_SECONDS: Final = 2_160
"""Search, image and read-back without their size, partitions, config drive, boot entry, and the report."""
_IMAGE_GIB_SECONDS: Final = 180
"""Written once and read back once."""
DEPLOY_SECONDS_MAX: Final = 14_400


def deploy_seconds(image_bytes: int) -> int:
    """How long the deployment of an image that unpacks to this size may take, at the deadlines of its steps."""
    return min(DEPLOY_SECONDS_MAX, _DEPLOY_SECONDS + image_bytes * _IMAGE_GIB_SECONDS // _GIB + 1)


def certificate_seconds(task_seconds: int) -> int:
    """Life of the certificate of a deploy system whose task may take so long: it is issued before the hello."""
    return RUN_SECONDS_MAX + task_seconds


def work_step_seconds(task_seconds: int) -> float:
    """Longer than a task of a deploy system can be open, which waits for its hello first."""
    return 2.0 * RUN_SECONDS_MAX + task_seconds


class RunStep(StrEnum):
    """What a run does now, or did last."""

    POWER_OFF = "power_off"
    TO_PROVISIONING = "to_provisioning"
    START = "start"
    WORK = "work"
    EJECT = "eject"
    END = "end"
    TO_TENANT = "to_tenant"
    POWER_ON = "power_on"
    REACH = "reach"
    ROTATE = "rotate"


def first_step(kind: RunKind, ends_first: bool = False) -> RunStep:
    """The step at which a run begins. `ends_first`: a switch begins with a machine that is off and has no medium."""
    if ends_first and kind in SWITCHING:
        return RunStep.END
    return RunStep.POWER_ON if kind is RunKind.START else RunStep.POWER_OFF


class RunOutcome(StrEnum):
    """How a run ended. `failed`: see its failure; the machine may be on."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


class FindingCode(StrEnum):
    """What is wrong with a machine after the wipe of a release. The release completes, and the node's slots are in quarantine."""

    BMC_ROTATION_FAILED = "bmc_rotation_failed"
    """The password that the BMC had during the tenancy may still be valid."""
    FIRMWARE_CHANGED = "firmware_changed"
    """A version is another one than at the inspection before the tenancy, or is not stated any more."""
    FIRMWARE_NOT_LISTED = "firmware_not_listed"
    """A version is not on the list of the model."""
    FIRMWARE_NOT_READ = "firmware_not_read"
    """The list of the model names BIOS or BMC, and its version was not read."""


NEXT_STEPS: Final = {
    FindingCode.BMC_ROTATION_FAILED: (
        "berth node bmc rotate NODE (or berth node bmc set with a password that was set at the BMC); then berth node return"
    ),
    FindingCode.FIRMWARE_CHANGED: (
        "flash the vendor's firmware with the machine off, berth node cordon, berth node inspect NODE; then berth node return"
    ),
    FindingCode.FIRMWARE_NOT_LISTED: (
        "flash a listed version, or berth firmware put the list with this one; then berth node inspect NODE and berth node return"
    ),
    FindingCode.FIRMWARE_NOT_READ: (
        "berth node inspect NODE with a medium and an agent of this version; read what the inspection and the BMC report; then"
        " berth node return"
    ),
}


class Move(StrEnum):
    """What the worker does next with a run."""

    OPEN = "opened"
    REFUSE = "refused"
    TO_PROVISIONING = "to_provisioning"
    TO_PROVISIONING_AGAIN = "to_provisioning_again"
    START = "started"
    WORK = "working"
    EJECT = "ejecting"
    END = "ending"
    END_AGAIN = "ending_again"
    TO_TENANT = "to_tenant"
    TO_TENANT_AGAIN = "to_tenant_again"
    POWER_ON = "powering_on"
    REACH = "reaching"
    """Of a rescue, the deploy system is handed over to the tenant first."""
    ROTATE = "rotating"
    ROTATE_AGAIN = "rotating_again"
    CLOSE = "closed"
    QUARANTINE = "quarantined"
    """Closed, with the node's slots in quarantine."""


@dataclass(frozen=True, slots=True)
class Part:
    """The task of the present step. `is_signed`: an agent or the deploy system may have begun; `failure` None: it completed, or
    is open."""

    is_open: bool
    is_signed: bool
    failure: str | None
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """A locked run and its parts. `part` None: its task is gone. `is_stopped`: by an operator, or as the task of the allocation
    that it performs does not count any more. `rotates`: it wipes for a release, and the BMC's password is rotated then.
    `has_ports`: ports of its machine are set, and moved."""

    step: RunStep
    part: Part | None
    is_permitted: bool
    is_started: bool
    is_stopped: bool
    is_overdue: bool
    failure: str | None
    attempts: int
    kind: RunKind = RunKind.INSPECT
    rotates: bool = False
    has_ports: bool = False


@dataclass(frozen=True, slots=True)
class Next:
    """The next move, and why the run fails from now on (None: as it was). `finding`: what is wrong with the machine, although
    the run has not failed."""

    move: Move
    failure: str | None = None
    finding: str | None = None


def next_move(run: Standing) -> Next | None:
    """The next move of a run; None while its task is under way."""
    if run.step is RunStep.END:
        return _after_end(run)
    if run.step is RunStep.ROTATE:
        return _after_rotation(run)
    if run.step in _PORT_MOVES:
        return _after_ports(run, *_PORT_MOVES[run.step])
    part = run.part
    if run.step is RunStep.START and run.is_started:
        # Whatever the agent of the site reports: the deploy system has said hello.
        return _undone(run, None) if run.is_stopped else Next(Move.WORK)
    if part is not None and part.is_open and not run.is_overdue:
        if run.is_stopped and (run.step in _IDLE_STEPS or not part.is_signed):
            return _undone(run, None)
        return None
    if part is None or part.is_open:
        why = "gone: its task does not exist any more" if part is None else "deadline_passed: its task did not end"
        return _undone(run, why)
    if run.is_stopped:
        return _undone(run, None)
    if run.step is RunStep.WORK:
        is_rescue = run.kind is RunKind.RESCUE and part.failure is None
        return Next(Move.EJECT if is_rescue else Move.END, part.failure)
    if part.failure is None or (part.is_unknown and run.step in _PROVEN_LATER and run.kind not in SWITCHING):
        return Next(_following(run))
    return _undone(run, part.failure)


_IDLE_STEPS: Final = frozenset({RunStep.WORK, RunStep.REACH})
"""Steps in which no agent commands the power of the machine: a stop need not wait for their task."""
_PROVEN_LATER: Final = frozenset({RunStep.START, RunStep.POWER_ON})
"""Whether the machine is on is proven by the next step: by a hello, or by SSH."""
_FOLLOWING: Final = {
    RunStep.POWER_OFF: Move.START,
    RunStep.START: Move.WORK,
    RunStep.EJECT: Move.REACH,
    RunStep.POWER_ON: Move.REACH,
    RunStep.REACH: Move.CLOSE,
}


def _following(run: Standing) -> Move:
    """The move after a step that has done its part."""
    if run.kind not in SWITCHING:
        if run.step is RunStep.POWER_OFF and run.has_ports:
            return Move.TO_PROVISIONING
        return _FOLLOWING[run.step]
    return Move.POWER_ON if run.step is RunStep.POWER_OFF and run.kind is RunKind.REBOOT else Move.CLOSE


_PORT_MOVES: Final = {
    RunStep.TO_PROVISIONING: (Move.START, Move.TO_PROVISIONING_AGAIN),
    RunStep.TO_TENANT: (Move.POWER_ON, Move.TO_TENANT_AGAIN),
}
"""What follows a proven move of the ports, and one that is not."""
_PORTS_FINAL: Final = frozenset(
    {
        "not_built",
        "switch_unknown",
        "port_unknown",
        "no_ports",
        "segments_exhausted",
        "segments_unknown",
        "segment_not_left",
        "task_refused",
        "machine_on",
        "not_read_back",
    }
)
"""Another attempt cannot help."""


def _after_ports(run: Standing, then: Move, again: Move) -> Next | None:
    """The machine is off. It is not switched on before the segment of its ports is proven."""
    part = run.part
    if part is not None and part.is_open and not run.is_overdue:
        return _undone(run, None) if run.is_stopped and not part.is_signed else None
    if run.is_stopped:
        return _undone(run, None)
    if part is not None and not part.is_open and part.failure is None:
        return Next(then)
    why = "deadline_passed: its task did not end" if part is None or part.failure is None else part.failure
    if run.attempts < PORT_ATTEMPTS_MAX and why.partition(":")[0] not in _PORTS_FINAL:
        return Next(again)
    return _undone(run, why)


def _undone(run: Standing, failure: str | None) -> Next:
    """End the deploy system if one may have been started; otherwise there is nothing to undo."""
    return Next(Move.END if run.is_permitted else Move.CLOSE, failure)


def _after_end(run: Standing) -> Next | None:
    part = run.part
    if part is not None and part.is_open and not run.is_overdue:
        return None
    if part is not None and not part.is_open and part.failure is None:
        return Next(Move.CLOSE if run.failure is not None or run.is_stopped else _after_good_end(run))
    if run.attempts < END_ATTEMPTS_MAX:
        return Next(Move.END_AGAIN)
    why = "its task did not end" if part is None or part.failure is None else part.failure
    before = "" if run.failure is None else f"; before it: {run.failure}"
    return Next(Move.CLOSE, f"not_ended: the machine may be on, or has the medium ({why}){before}")


def _after_good_end(run: Standing) -> Move:
    if run.kind in (RunKind.DEPLOY, RunKind.START, RunKind.REBOOT):
        return Move.TO_TENANT if run.has_ports else Move.POWER_ON
    return Move.ROTATE if run.rotates else Move.CLOSE


_ROTATION_FINAL: Final = frozenset({"bmc_credentials_refused", "bmc_not_supported"})
"""Another attempt cannot help, and more refused logins may lock the account."""


def _after_rotation(run: Standing) -> Next | None:
    """The wipe is proven and the machine off, so that the run completes: the units of the release wait for no password."""
    part = run.part
    if part is not None and part.is_open and not run.is_overdue:
        return Next(Move.CLOSE) if run.is_stopped and not part.is_signed else None
    if part is not None and not part.is_open and part.failure is None:
        return Next(Move.CLOSE)
    why = "its task did not end" if part is None or part.failure is None else part.failure
    if run.attempts < ROTATION_ATTEMPTS_MAX and why.partition(":")[0] not in _ROTATION_FINAL and not run.is_stopped:
        return Next(Move.ROTATE_AGAIN)
    return Next(Move.CLOSE, finding=f"{FindingCode.BMC_ROTATION_FAILED}: {why}")


def outcome_of(failure: str | None, is_stopped: bool) -> RunOutcome:
    """How a run ended that has this failure."""
    if failure is not None:
        return RunOutcome.FAILED
    return RunOutcome.STOPPED if is_stopped else RunOutcome.COMPLETED
