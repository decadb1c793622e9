"""Refusals of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from orchestrator.catalogue.rules import GuestSize, Lack
from orchestrator.problems import Problem


class ImageInUse(Problem):
    """Something needs the image; `users` counts what does, by kind."""

    status, code, title, business = 409, "image_in_use", "Image in use", True

    @classmethod
    def by(cls, name: str, users: Mapping[str, int]) -> Self:
        """The refusal for these counts; at least one is not zero."""
        named = ", ".join(f"{count} {kind}" for kind, count in users.items() if count)
        return cls(
            f"image {name!r} is needed by {named}; retire it with state=retired, and delete it after these have ended",
            users=dict(users),
        )


class GuestSizeFixed(Problem):
    """The SKU has another size of guests, or none: what was sold does not change."""

    status, code, title, business = 409, "guest_size_fixed", "Guest size is fixed", True

    @classmethod
    def of(cls, name: str, size: GuestSize) -> Self:
        """The refusal of another size than this one."""
        return cls(
            f"the size of the guests of SKU {name!r} was fixed when it was made; leave it out, or make another SKU and retire"
            " this one with state=retired",
            vcpus_per_gpu=size.vcpus,
            memory_bytes_per_gpu=size.memory_bytes,
        )


class GuestSizeMisfit(Problem):
    """A slot of a node has less than an active SKU of its pool states."""

    status, code, title, business = 409, "guest_size_misfit", "Guest size does not fit", True

    @classmethod
    def of(cls, node: str, sku: str, lack: Lack) -> Self:
        """The refusal for this node and SKU."""
        return cls(
            f"node {node} cannot make the guests of SKU {sku!r}: {lack.sentence}; state less, or retire the SKU or the node",
            node=node,
            sku=sku,
            slot=lack.slot,
        )


class GuestSizeUnsupported(Problem):
    """The agent of a node is of a version that makes no guests of a stated size."""

    status, code, title, business = 409, "guest_size_unsupported", "Guest size not supported", True

    @classmethod
    def by(cls, node: str, sku: str, version: str | None) -> Self:
        """The refusal for a node with an agent of this version."""
        return cls(
            f"the agent of node {node} (version {version}) makes no guests of a stated size, and SKU {sku!r} states one;"
            " upgrade the agent",
            node=node,
            sku=sku,
            agent_version=version,
        )
