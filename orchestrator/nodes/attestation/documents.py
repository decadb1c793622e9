"""Attestations on demand as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.nodes.attestation.store import AcceptedPcrs, Attestation
from orchestrator.times import rfc3339, wait_document


def attestation_document(found: Attestation) -> JsonObject:
    """The JSON of an attestation, with its evidence."""
    return {
        "id": str(found.id),
        "node_id": str(found.node_id),
        "nonce": found.nonce.hex(),
        "requested_at": rfc3339(found.requested_at),
        "requested_by": found.requested_by,
        "issued_at": rfc3339(found.issued_at),
        "deploy_run_id": None if found.deploy_run_id is None else str(found.deploy_run_id),
        "ended_at": rfc3339(found.ended_at),
        "verdict": found.verdict,
        "code": found.code,
        "detail": found.detail,
        "pcrs": found.pcrs,
        "compared": found.compared,
        "evidence": found.evidence,
        "waits": wait_document(found.waits_for, found.waits_since, found.waits_until),
    }


def attestations_document(node_id: UUID, kept: Sequence[Attestation], accepted: AcceptedPcrs | None) -> JsonObject:
    """The JSON of a node's attestations, the newest with its evidence."""
    documents = [attestation_document(one) for one in kept]
    return {
        "node_id": str(node_id),
        "accepted": None if accepted is None else {
            "pcrs": accepted.pcrs,
            "attestation_id": str(accepted.attestation_id),
            "accepted_at": rfc3339(accepted.accepted_at),
            "accepted_by": accepted.accepted_by,
        },
        "newest": documents[0] if documents else None,
        "earlier": [{**one, "evidence": None} for one in documents[1:]],
    }  # fmt: skip
