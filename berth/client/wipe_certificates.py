"""Wipe certificates: the document, and the error about a missing one. `berth certificate verify` verifies a document."""

from __future__ import annotations

from typing import Any

from berth.client.errors import NotFound
from berth.client.models import Answer


class WipeCertificate(Answer):
    """What a node signed about the wipe of an allocation, the control plane's countersignature, and the key set of both."""

    format: str
    statement: dict[str, Any]
    countersignature: dict[str, Any]
    key_set: dict[str, Any] | None = None


class WipeCertificateMissing(NotFound):
    """The allocation has no wipe certificate, or not yet; `state` is the allocation's."""

    codes = ("wipe_certificate_missing",)

    @property
    def state(self) -> str | None:
        """The allocation's state."""
        state: str | None = self.extra.get("state")
        return state
