"""Lists of accepted firmware of models of machines."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.models import Answer


class AcceptedFirmware(Answer):
    """The accepted versions of a component; `model` None: of every part of it."""

    component: str
    model: str | None = None
    versions: list[str]


class FirmwareList(Answer):
    """The accepted firmware of a model, which SMBIOS names by vendor and product."""

    id: UUID
    vendor: str
    product: str
    components: list[AcceptedFirmware]
    changed_at: datetime
    changed_by: str
