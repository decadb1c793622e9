"""The catalogue of failures: each stable code, what happened, which role acts, and its next step. Pure.

Sources: "Failure -> state mapping" of the allocation lifecycle (reference/allocation-lifecycle.txt) and our own. A code
that a node reports is one of `node_agent.protocol.FailureCode`; tests hold both lists and docs/reference/failures.md together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.allocations.states import AllocationState


class Code(StrEnum):
    """Stable codes in allocations, timelines, events and metrics; their meaning never changes."""

    LEASE_CONFLICT = "lease_conflict"
    IMAGE_DOWNLOAD_FAILED = "image_download_failed"
    IMAGE_CHECKSUM_MISMATCH = "image_checksum_mismatch"
    IMAGE_DOES_NOT_FIT = "image_does_not_fit"
    VFIO_HOST_NOT_READY = "vfio_host_not_ready"
    HUGE_PAGES_SHORT = "huge_pages_short"
    DISK_POOL_SHORT = "disk_pool_short"
    GUEST_SIZE_UNAVAILABLE = "guest_size_unavailable"
    GUEST_SIZE_UNSUPPORTED = "guest_size_unsupported"
    GUEST_DEFINITION_FAILED = "guest_definition_failed"
    SSH_READINESS_TIMEOUT = "ssh_readiness_timeout"
    GUEST_MARKER_MISSING = "guest_marker_missing"
    INTERRUPTED = "interrupted"
    TASK_REFUSED = "task_refused"
    DRIVER_ERROR = "driver_error"
    NOT_STARTED = "not_started"
    UNITS_NOT_FREE = "units_not_free"
    AGENT_SILENT = "agent_silent"
    NODE_OFFLINE = "node_offline"
    NETWORK_FULL = "network_full"
    MACHINE_RUN_FAILED = "machine_run_failed"
    CLEANUP_FAILED = "cleanup_failed"
    HARD_STOPPED = "hard_stopped"
    RELEASE_EXHAUSTED = "release_exhausted"
    CLEANUP_EXHAUSTED = "cleanup_exhausted"


class Acts(StrEnum):
    """The role that acts after a failure."""

    NOBODY = "nobody"
    TENANT = "tenant"
    OPERATOR = "operator"


class Retried(StrEnum):
    """What Berth retries automatically; the number of attempts is a setting (docs/reference/configuration.md)."""

    NOT = "not"
    PROVISION = "another provision attempt"
    RELEASE = "another release attempt"


@dataclass(frozen=True, slots=True)
class Failure:
    """One code. `lands_in`: the allocation's state after the last retry.

    `switch`: the fault switch that provokes it in the sandbox (docs/reference/sandbox-driver.md); None if several are needed.
    """

    code: Code
    happened: str
    acts: Acts
    next_step: str
    lands_in: AllocationState
    retried: Retried = Retried.NOT
    switch: str | None = None


_FAILED, _RELEASED, _RELEASE_FAILED = AllocationState.FAILED, AllocationState.RELEASED, AllocationState.RELEASE_FAILED

_ALL = (
    Failure(
        Code.LEASE_CONFLICT,
        "A slot on the node was still leased to another allocation.",
        Acts.OPERATOR,
        "Look for what still holds the lease on the node; an expired lease is cleared there, an orphan must be removed.",
        _FAILED,
        Retried.PROVISION,
        "lease_conflict",
    ),
    Failure(
        Code.IMAGE_DOWNLOAD_FAILED,
        "The node could not fetch the image.",
        Acts.OPERATOR,
        "Check the image in the catalogue: its URL must be reachable from the node.",
        _FAILED,
        switch="image_download",
    ),
    Failure(
        Code.IMAGE_CHECKSUM_MISMATCH,
        "The image that the node fetched does not have the SHA-256 of the catalogue.",
        Acts.OPERATOR,
        "Check the image in the catalogue: put the SHA-256 of what its URL serves, or restore what it served.",
        _FAILED,
        switch="image_checksum",
    ),
    Failure(
        Code.IMAGE_DOES_NOT_FIT,
        "The image needs a larger disk or another firmware than the node gives its guests.",
        Acts.OPERATOR,
        "Offer the image for other SKUs, give guests a larger disk, or install OVMF; the detail says which.",
        _FAILED,
        switch="image_fit",
    ),
    Failure(
        Code.VFIO_HOST_NOT_READY,
        "A device must be bound to VFIO and the host does not allow it.",
        Acts.OPERATOR,
        "Cordon the node, run the host bootstrap on it, reboot it, and uncordon it.",
        _FAILED,
        switch="vfio",
    ),
    Failure(
        Code.HUGE_PAGES_SHORT,
        "The node has fewer free huge pages than the guest's memory needs.",
        Acts.OPERATOR,
        "Reserve more huge pages on the node, at its next boot if memory is fragmented; the detail says where and how many.",
        _FAILED,
        switch="huge_pages",
    ),
    Failure(
        Code.DISK_POOL_SHORT,
        "The node's thin pool has no room for the guest's disk.",
        Acts.OPERATOR,
        "Extend the pool on the node, or remove volumes that are not Berth's; the detail says how large it is and what is used.",
        _FAILED,
        switch="disk_pool",
    ),
    Failure(
        Code.GUEST_SIZE_UNAVAILABLE,
        "The SKU states more vCPUs or memory than the node has for the slots, or memory that its huge pages do not divide.",
        Acts.OPERATOR,
        "Give slots a larger share on the node, or take the node out of the pool of the SKU; the detail says what is too small.",
        _FAILED,
        switch="guest_size",
    ),
    Failure(
        Code.GUEST_SIZE_UNSUPPORTED,
        "The SKU states the size of its guests, and the node's agent is of a version that does not know sizes.",
        Acts.OPERATOR,
        "Upgrade the node's agent; cordon the node until then.",
        _FAILED,
    ),
    Failure(
        Code.GUEST_DEFINITION_FAILED,
        "The hypervisor refused the guest's definition, or the guest did not start.",
        Acts.OPERATOR,
        "Read the hypervisor's log on the node; the failure's detail quotes what it refused.",
        _FAILED,
        switch="guest_definition",
    ),
    Failure(
        Code.SSH_READINESS_TIMEOUT,
        "The guest ran but did not answer over SSH in time.",
        Acts.OPERATOR,
        "Inspect the cloud-init log on the guest's boot disk.",
        _FAILED,
        switch="ssh_readiness",
    ),
    Failure(
        Code.GUEST_MARKER_MISSING,
        "The guest could be reached but never wrote the marker that says it is ready.",
        Acts.OPERATOR,
        "Switch to the image with the preinstalled driver; the driver's installation did not end.",
        _FAILED,
        switch="guest_marker",
    ),
    Failure(
        Code.INTERRUPTED,
        "The agent ended while it worked; what it had begun was undone.",
        Acts.TENANT,
        "Create it again; if the node's agent keeps ending, an operator reads its log.",
        _FAILED,
        Retried.PROVISION,
    ),
    Failure(
        Code.TASK_REFUSED,
        "The node refused its task: wrong node, old fence, expired, or parameters it cannot use.",
        Acts.OPERATOR,
        "Compare the clocks, signing keys and versions of the agent and the control plane; the detail names the objection.",
        _FAILED,
    ),
    Failure(
        Code.DRIVER_ERROR,
        "The node's driver met something that it did not foresee.",
        Acts.OPERATOR,
        "Read the agent's log on the node and report the error that it shows.",
        _FAILED,
    ),
    Failure(
        Code.NOT_STARTED,
        "No worker began it before its deadline.",
        Acts.OPERATOR,
        "Check that relay, NATS, Temporal and a worker run (berth doctor); then create it again.",
        _FAILED,
    ),
    Failure(
        Code.UNITS_NOT_FREE,
        "Its reservation began, but what ran before on its units was not proven gone in time.",
        Acts.OPERATOR,
        "Find what is still on the units (berth node show) and force-release or force-cleanup it; then create it again.",
        _FAILED,
    ),
    Failure(
        Code.AGENT_SILENT,
        "The node is online, but its agent did not report the task's end before the deadline.",
        Acts.OPERATOR,
        "Read the agent's log on the node and restart the agent if it hangs.",
        _FAILED,
        switch="agent_silent",
    ),
    Failure(
        Code.NODE_OFFLINE,
        "The node fell silent while the task ran and had not come back at the deadline.",
        Acts.OPERATOR,
        "Bring the node back, then force-release; if it is gone for good, force-cleanup what it holds and retire it.",
        _FAILED,
        switch="agent_dies",
    ),
    Failure(
        Code.NETWORK_FULL,
        "No subnet or VLAN, no address in the tenant's network or no published port of the node was left to lease.",
        Acts.OPERATOR,
        "Read the detail; release what is not needed, or enlarge BERTH_NETWORK_POOL, BERTH_NETWORK_VLANS or the published ports.",
        _FAILED,
    ),
    Failure(
        Code.MACHINE_RUN_FAILED,
        "The site could not deploy or switch the machine through its BMC.",
        Acts.OPERATOR,
        "Read the detail: it begins with the code of the run; then the page of runs has its next step.",
        _FAILED,
    ),
    Failure(
        Code.CLEANUP_FAILED,
        "An attempt to release did not prove that nothing is left.",
        Acts.NOBODY,
        "Wait: another attempt follows; the detail says what is left on the node.",
        _RELEASE_FAILED,
        Retried.RELEASE,
    ),
    Failure(
        Code.HARD_STOPPED,
        "The guest could not be asked to stop and was destroyed; everything else of the cleanup is proven.",
        Acts.NOBODY,
        "Nothing needs to be done.",
        _RELEASED,
        switch="ssh_unreachable",
    ),
    Failure(
        Code.RELEASE_EXHAUSTED,
        "Every release attempt ended without proof; metered time has stopped, the units stay occupied.",
        Acts.OPERATOR,
        "Remove the cause on the node, then force-release; if nothing of it is left there, force-cleanup.",
        _RELEASE_FAILED,
        switch="wipe_fails",
    ),
    Failure(
        Code.CLEANUP_EXHAUSTED,
        "Every attempt to clean up after a failure ended without proof; the slots are blocked.",
        Acts.OPERATOR,
        "Remove the cause on the node, then force-release; if nothing of it is left there, force-cleanup.",
        _FAILED,
    ),
)

CHANGES_NOTHING = frozenset({Code.TASK_REFUSED, Code.GUEST_SIZE_UNAVAILABLE, Code.GUEST_SIZE_UNSUPPORTED})
"""Codes of a verb that failed before the guest was touched."""
FAILURES: dict[Code, Failure] = {failure.code: failure for failure in _ALL}


def next_step_of(code: str | None) -> str | None:
    """The next step for a code; None without a code, or for a code of a newer release."""
    return FAILURES[Code(code)].next_step if code in _KNOWN else None


def may_pass(code: str | None) -> bool:
    """Whether a provision that failed with this code is retried ("Workflow retries")."""
    return code in _KNOWN and FAILURES[Code(code)].retried is Retried.PROVISION


def silence(node_online: bool) -> tuple[Code, str]:
    """Code and detail of a task without a report before its deadline, by whether its node is online."""
    if node_online:
        return Code.AGENT_SILENT, "the node is online and did not report its task before the deadline"
    return Code.NODE_OFFLINE, "the node went offline and did not report its task before the deadline"


_KNOWN = frozenset(code.value for code in Code)
