"""Which tasks the agent of a site takes: evaluated before anything is journaled or done (P7, P10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from node_agent.admission import Refused, Untrusted, time_objection
from node_agent.clock import ServerClock
from node_agent.journal_state import JournalState
from node_agent.key_set import KeySet, TaskKey
from node_agent.protocol import OF_SITES, EnvelopeRejected, HandedOutTask, TaskBody, open_envelope
from node_agent.wire.sites import BmcTaskParameters


@dataclass(frozen=True)
class SiteTrust:
    """The agent's site, and the keys of the key set: no other source names a signing key."""

    site_id: UUID
    keys: Mapping[str, Ed25519PublicKey]
    limits: Mapping[str, TaskKey]

    @classmethod
    def of(cls, site_id: UUID, key_set: KeySet) -> SiteTrust:
        """The trust of an agent of this site that uses this key set."""
        limits = {key.key_id: key for key in key_set.task_keys}
        return cls(site_id, {name: key.key() for name, key in limits.items()}, limits)


@dataclass(frozen=True)
class AdmittedBmcTask:
    """To be journaled and carried out."""

    body: TaskBody
    parameters: BmcTaskParameters


def admit(
    handed: HandedOutTask, trust: SiteTrust, journal: JournalState, clock: ServerClock
) -> AdmittedBmcTask | Refused | Untrusted:
    """Evaluate a task as it was handed out: signed by a valid key, for this site, in time, and no older than the newest fence
    that was seen for its machine. Raises LookupError if the server's time is not known yet."""
    try:
        body = open_envelope(handed.envelope, trust.keys)
    except EnvelopeRejected as rejected:
        return Untrusted(rejected.reason)
    key, now = trust.limits[body.key_id], clock.now()
    if (key.not_before is not None and now < key.not_before) or (key.not_after is not None and now >= key.not_after):
        return Untrusted("key_not_valid_now")
    if body.task_id != handed.task_id:
        return Untrusted("wrong_task_id")
    lacking = body.needs_objection(())
    if body.type not in OF_SITES and not (lacking and body.parameters.get("site_id") == str(trust.site_id)):
        return Untrusted("wrong_type")
    if lacking is not None:
        return Refused(body, lacking)
    try:
        parameters = BmcTaskParameters.model_validate(body.parameters)
    except ValidationError as error:
        fields = ", ".join(".".join(str(part) for part in found["loc"]) for found in error.errors())
        return Refused(body, f"its parameters are not those of {body.type}: {fields}")
    if parameters.site_id != trust.site_id:
        return Untrusted("wrong_site")
    objection = time_objection(body, clock) or journal.fence_objection(body)
    return AdmittedBmcTask(body, parameters) if objection is None else Refused(body, objection)
