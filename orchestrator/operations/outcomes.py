"""Outcomes that several writes share: a key with a stored response, and an item that needs another attempt. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The idempotency key was used before. `fingerprint` is that of the first request; None for a tombstone."""

    status: int
    body: str
    fingerprint: bytes | None

    @classmethod
    def decode(cls, json: Mapping[str, Any]) -> StoredResponse:
        """From the outcome `existing` of an SQL function."""
        fingerprint = None if json["fingerprint"] is None else bytes.fromhex(json["fingerprint"])
        return cls(json["status"], json["body"], fingerprint)


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Another transaction holds or changed what the item needs. Nothing was written; try the item again, alone."""
