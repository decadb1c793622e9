"""Refusals of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from orchestrator.problems import Problem
from orchestrator.times import rfc3339


class DriverRefused(Problem):
    """The node's driver may not be used here, or is not that of its pool; the node does not come online."""

    status, code, title = 409, "driver_refused", "Driver refused"


class TopologyChanged(Problem):
    """Another topology was found since; `digest` is that of the newest."""

    status, code, title, business = 409, "topology_changed", "Topology changed", True

    @classmethod
    def to(cls, digest: str | None) -> TopologyChanged:
        """The refusal for a digest that is not the one found last."""
        return cls("this is not the topology that was found last; read it again and approve that one", digest=digest)


class TopologyMisfit(Problem):
    """The topology found is not that of the node's slots."""

    status, code, title, business = 409, "topology_misfit", "Topology does not fit", True


class BurnInRequired(Problem):
    """A slot that a fault of the hardware took out returns only after a burn-in that passed since."""

    status, code, title, business = 409, "burn_in_required", "Burn-in required", True

    @classmethod
    def of(cls, slot_index: int, source: str, since: datetime, failure: str | None) -> BurnInRequired:
        """The refusal for a slot whose last fault was found then. `failure`: why the last burn-in did not pass."""
        last = "" if failure is None else f" (the last one did not: {failure})"
        remedy = f"run `berth node burn-in NODE --slot {slot_index}`, or return it with `without_burn_in` and say why in the note"
        return cls(
            f"no burn-in of slot {slot_index} has passed since {rfc3339(since)}{last}; {remedy}",
            slot=slot_index,
            source=source,
        )


class BurnInUnsupported(Problem):
    """The node's agent is of a version that has no burn-in."""

    status, code, title, business = 409, "burn_in_unsupported", "Burn-in not supported", True

    @classmethod
    def by(cls, version: str | None) -> BurnInUnsupported:
        """The refusal for a node with an agent of this version."""
        return cls(
            f"the node's agent (version {version}) has no burn-in; upgrade it, or return the slot with `without_burn_in`"
            " and a note that says why",
            agent_version=version,
        )


class GpuResetUnsupported(Problem):
    """The node's agent is of a version that has no reset of GPUs."""

    status, code, title, business = 409, "gpu_reset_unsupported", "GPU reset not supported", True

    @classmethod
    def by(cls, version: str | None) -> GpuResetUnsupported:
        """The refusal for a node with an agent of this version."""
        return cls(f"the node's agent (version {version}) has no GPU reset; upgrade it", agent_version=version)


class GpusInService(Problem):
    """GPUs that are reset together are not all out of service; `slots` are the others."""

    status, code, title, business = 409, "gpus_in_service", "GPUs in service", True

    @classmethod
    def of(cls, slot_index: int, refused: Mapping[int, str]) -> GpusInService:
        """The refusal of a reset of this slot's GPU. `refused`: why each of these slots is not out of service."""
        return cls(
            f"the GPU of slot {slot_index} cannot be reset: {cls.sentence(refused)}; take each of these slots out of service with"
            " `berth node quarantine`, or plan maintenance",
            slots=sorted(refused),
        )

    @staticmethod
    def sentence(refused: Mapping[int, str]) -> str:
        """The slots, and why."""
        return ", ".join(f"slot {slot}: {why}" for slot, why in sorted(refused.items()))


class AttestationUnavailable(Problem):
    """The node cannot be attested on demand; `reason` is `tpm_not_bound` or `agent`, with `agent_version`."""

    status, code, title, business = 409, "attestation_unavailable", "Attestation unavailable", True

    @classmethod
    def without_tpm(cls) -> AttestationUnavailable:
        """The refusal for a node that has proven no TPM."""
        return cls(
            "no TPM has been proven for this node: start its agent or its deploy system with one, and enrol or inspect it again",
            reason="tpm_not_bound",
        )

    @classmethod
    def by(cls, version: str | None) -> AttestationUnavailable:
        """The refusal for an agent of this version."""
        return cls(
            f"the node's agent (version {version or 'unknown'}) attests at enrolment and renewal alone; upgrade it",
            reason="agent",
            agent_version=version,
        )


class AttestationReason(StrEnum):
    """Why the answer of a TPM is refused."""

    MALFORMED = "malformed"
    UNSUITABLE_KEY = "unsuitable_key"
    NO_CHALLENGE = "no_challenge"
    OTHER_TPM = "other_tpm"
    OTHER_KEY = "other_key"
    OTHER_REQUEST = "other_request"
    BAD_SIGNATURE = "bad_signature"


class AttestationProblem(Problem):
    """A refusal for want of a proof by the node's TPM, which is recorded. `node_id`: the node, once it is known."""

    node_id: UUID | None = None


class AttestationRequired(AttestationProblem):
    """The node must prove its TPM, and the request does not."""

    status, code, title = 403, "attestation_required", "Attestation required"


class AttestationRefused(AttestationProblem):
    """The answer of the TPM does not prove that it is the node's; `reason` is one word."""

    status, code, title = 403, "attestation_refused", "Attestation refused"

    def __init__(self, reason: AttestationReason, detail: str) -> None:
        super().__init__(f"the attestation is refused: {detail}", reason=reason.value)
        self.reason = reason
