"""Pools and attestations of nodes, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, write
from berth.client.hardware.attestations import Attestation, NodeAttestations
from berth.client.hardware.pools import Pool
from berth.client.models import Page

POOLS = "/api/v1/admin/pools"
NODES = "/api/v1/admin/nodes"


def list_pools(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Pool]]:
    """Pools in the order in which their first nodes were registered."""
    return read_page(POOLS, Pool, limit=limit, cursor=cursor)


def set_pool_attestation(
    pool_id: int, *, policy: Literal["off", "offered", "required"], idempotency_key: str | None = None
) -> Call[Pool]:
    """Say whether the nodes of a pool prove their TPMs; a node with its own policy keeps that. Raises `NotFound`."""
    return write("PUT", f"{POOLS}/{pool_id}/attestation", Pool, {"policy": policy}, idempotency_key)


def attest_node(node_id: UUID, *, idempotency_key: str | None = None) -> Call[Attestation]:
    """Have the TPM of a node quote a new nonce; an open attestation is the answer.

    Raises `NotFound`, `AttestationUnavailable`, `InvalidState`, `NodeInUse` while a tenant has a machine without an agent.
    """
    return write("POST", f"{NODES}/{node_id}/attestation", Attestation, {}, idempotency_key)


def get_node_attestations(node_id: UUID) -> Call[NodeAttestations]:
    """The attestations of a node that are kept, and the PCRs that are accepted. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/attestation", NodeAttestations)


def accept_attestation(
    node_id: UUID, attestation_id: UUID, *, idempotency_key: str | None = None
) -> Call[NodeAttestations]:
    """Compare later attestations of the node with the PCRs of this one. Raises `NotFound`, `InvalidState` if it proved none."""
    body = {"attestation_id": str(attestation_id)}
    return write("POST", f"{NODES}/{node_id}/attestation/accept", NodeAttestations, body, idempotency_key)
