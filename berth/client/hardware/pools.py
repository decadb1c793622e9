"""Pools: the nodes of a region with the same GPUs in the same shape."""

from __future__ import annotations

from berth.client.models import Answer


class Pool(Answer):
    """A pool. `attestation`: the policy of its nodes without their own."""

    id: int
    region: str
    gpu_model: str
    shape: str
    attestation: str
