"""Outcomes that several writes share: a key with a stored response, and an item that needs another attempt. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from berth.process.json_objects import JsonMapping


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The idempotency key was used before. `fingerprint` is that of the first request; None for a tombstone."""

    status: int
    body: str
    fingerprint: bytes | None

    @classmethod
    def decode(cls, json: JsonMapping) -> StoredResponse:
        """From the outcome `existing` of an SQL function."""
        fingerprint = None if json["fingerprint"] is None else bytes.fromhex(json["fingerprint"])
        return cls(json["status"], json["body"], fingerprint)


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Another transaction holds or changed what the item needs. Nothing was written; try the item again, alone."""
