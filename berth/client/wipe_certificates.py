"""Wipe certificates: the document, and the error about a missing one. `berth certificate verify` verifies a document."""

from __future__ import annotations

from berth.client.errors import NotFound
from berth.client.models import Answer
from berth.process.json_objects import JsonObject


class WipeCertificate(Answer):
    """What a node signed about the wipe of an allocation, the control plane's countersignature, and the key set of both."""

    format: str
    statement: JsonObject
    countersignature: JsonObject
    key_set: JsonObject | None = None


class WipeCertificateMissing(NotFound):
    """The allocation has no wipe certificate, or not yet; `state` is the allocation's."""

    codes = ("wipe_certificate_missing",)

    @property
    def state(self) -> str | None:
        """The allocation's state."""
        state: str | None = self.extra.get("state")
        return state
