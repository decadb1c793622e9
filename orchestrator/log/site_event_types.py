"""The schemas of the events of sites and their agents; operators read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.log.event_kinds import EventKind, Visibility
from orchestrator.log.event_members import CERTIFICATE, FLAG, ID, OBJECT, TEXT, WHOLE
from orchestrator.log.events import EventType

_O = Visibility.OPERATOR

SITE_EVENT_KINDS: Final[Mapping[EventType, EventKind]] = {
    EventType.SITE_AGENT_ENROLLED: EventKind(
        _O, "an agent of a site was enrolled, and its certificate is requested; earlier ones are revoked",
        {"agent_id": ID, "name": TEXT, "epoch": WHOLE, "hardware_id": TEXT},
    ),
    EventType.SITE_AGENT_REVOKED: EventKind(
        _O, "an agent of a site was revoked, with its certificates and tokens",
        {"site_id": ID, "agent_id": ID, "reason": TEXT, "certificates": WHOLE},
    ),
    EventType.SITE_CERTIFICATE_ISSUED: EventKind(
        _O, "the issuer signed a certificate for an agent of a site; digests in lower-case hex", {"agent_id": ID, **CERTIFICATE}
    ),
    EventType.NODE_BMC_PASSWORD_STORED: EventKind(
        _O, "a password of a BMC was stored, sealed to its recipients, whose ids are the names in `sealed`; `given`: the BMC"
        " accepts it, otherwise it may have received it",
        {"node_id": ID, "site_id": ID, "generation": WHOLE, "given": FLAG, "sealed": OBJECT},
    ),
    EventType.SITE_IDENTITY_CONFLICT: EventKind(
        _O, "two keys were used as the identity of an agent of a site; its calls are refused until it enrols again",
        {"agent_id": ID, "name": TEXT, "epoch": WHOLE, "serial": TEXT},
    ),
}  # fmt: skip
