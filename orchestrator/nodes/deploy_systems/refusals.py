"""Refusals of deploy systems."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from orchestrator.problems import Problem


class DeployReason(StrEnum):
    """Why a deploy system is refused. Each leaves the permission as it was."""

    USED = "used"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    REVOKED = "revoked"
    HANDED_OVER = "handed_over"
    OTHER_EPOCH = "other_epoch"
    OTHER_MACHINE = "other_machine"
    NODE_IN_USE = "node_in_use"
    NODE_STATE = "node_state"
    CERTIFICATE_REFUSED = "certificate_refused"


DETAILS = {
    DeployReason.USED: "the token was used with another key; permit the deploy system again and boot the new medium",
    DeployReason.EXPIRED: "the token is over; permit the deploy system again and boot the new medium",
    DeployReason.SUPERSEDED: "a newer permission of this node has ended this one; boot the medium of the newest one",
    DeployReason.REVOKED: "an operator has ended this permission; power the machine off",
    DeployReason.HANDED_OVER: "the machine was handed over to its tenant; the medium boots nothing any more",
    DeployReason.OTHER_EPOCH: "the token is of another deploy epoch than the request names",
    DeployReason.OTHER_MACHINE: "the token is for a machine with another SMBIOS UUID or MAC",
    DeployReason.NODE_IN_USE: "the machine is in use by another claim; nothing is done on it before that has ended",
    DeployReason.NODE_STATE: "the state of the node allows no deploy system: it is retired, or in service",
    DeployReason.CERTIFICATE_REFUSED: "the issuer has refused the certificate; permit the deploy system again",
}


class DeployRefused(Problem):
    """The token is known, and no certificate is issued for it; `reason` is one word.

    `node_id` and `deploy_epoch`: the permission, for the audit; the response does not name them.
    """

    status, code, title = 403, "deploy_refused", "Deploy system refused"
    node_id: UUID | None = None
    deploy_epoch: int | None = None

    @classmethod
    def because(cls, reason: DeployReason) -> DeployRefused:
        """The refusal with its reason."""
        return cls(DETAILS[reason], reason=reason.value)


class DeploySystemEnded(Problem):
    """The certificate of a deploy system does not count any more: its permission has ended, or it is over."""

    status, code, title = 401, "deploy_system_ended", "Deploy system ended"

    @classmethod
    def because(cls, reason: str) -> DeploySystemEnded:
        """The refusal with its reason."""
        return cls(f"this deploy system may not act any more: {reason}; power the machine off", reason=reason)


class NoDeploySystem(Problem):
    """The node has no deploy system that could perform a task."""

    status, code, title, business = 409, "no_deploy_system", "No deploy system", True


class MachineUnknown(Problem):
    """No inspection has recorded the machine of the node, and the request does not name it."""

    status, code, title, business = 409, "machine_unknown", "Machine not known", True


class NotWipeable(Problem):
    """The newest inspection of the machine does not name all that a wipe must erase; `reason` is one word."""

    status, code, title, business = 409, "machine_not_wipeable", "Machine not wipeable", True


class DeployNotConfigured(Problem):
    """This process cannot permit deploy systems: a setting is missing."""

    status, code, title, business = 409, "deploy_not_configured", "Deploy systems not configured", True
