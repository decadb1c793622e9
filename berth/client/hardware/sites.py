"""Sites, their agents, and the BMCs of machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.client.errors import Refused
from berth.client.models import Answer, Waits
from berth.process.json_objects import JsonObject


class SiteLease(Answer):
    """The agent that acts for the site now."""

    agent_id: UUID
    fence: int
    until: datetime


class SiteAgent(Answer):
    """An agent of a site. `sealing_key`: X25519 public key (hex) to which passwords are sealed."""

    id: UUID
    name: str
    state: str
    epoch: int
    hardware_id: str | None = None
    enrolled_at: datetime | None = None
    identity_conflict_at: datetime | None = None
    sealing_key: str | None = None
    sealing_key_fingerprint: str | None = None
    agent_version: str | None = None
    last_seen_at: datetime | None = None
    created_at: datetime


class Site(Answer):
    """A site. `lease` None: no agent acts for it now."""

    id: UUID
    name: str
    recovery_key: str
    recovery_key_fingerprint: str
    created_at: datetime
    machines: int
    lease: SiteLease | None = None
    agents: list[SiteAgent]

    def recipients(self) -> dict[UUID, bytes]:
        """To what a password is sealed: the site's recovery key, by the site's id, and each active agent's key by its id."""
        keys = {
            agent.id: bytes.fromhex(agent.sealing_key)
            for agent in self.agents
            if agent.sealing_key is not None and agent.state == "active" and agent.identity_conflict_at is None
        }
        return {self.id: bytes.fromhex(self.recovery_key), **keys}


class SiteAgentToken(Answer):
    """A one-time token, shown once."""

    agent_id: UUID
    token: str
    expires_at: datetime


class BmcTask(Answer):
    """A task about a BMC. `outcome` None: it is open."""

    id: UUID
    kind: str
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None = None
    dispatched_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str | None = None
    failure: str | None = None
    power_state: str | None = None
    waits: Waits | None = None


class Bmc(Answer):
    """The BMC of a node, what was read there last, and its newest task. Nothing sealed is part of it."""

    node_id: UUID
    site_id: UUID
    url: str
    certificate_sha256: str
    username: str
    system_id: str | None = None
    generation: int
    pending_generation: int | None = None
    recipients: list[UUID]
    changed_at: datetime
    changed_by: str
    power_state: str | None = None
    inventory: JsonObject | None = None
    looked_at: datetime | None = None
    answered_at: datetime | None = None
    silent_because: str | None = None
    rotates_at_release: bool | None = None
    console_host_key: str | None = None
    console_shared: bool | None = None
    task: BmcTask | None = None


@dataclass(frozen=True, slots=True)
class SealedBmcPassword:
    """A password as it was sealed to each recipient (`Site.recipients`) as this generation."""

    generation: int
    copies: Mapping[UUID, str]

    def document(self) -> JsonObject:
        """The JSON that the API takes."""
        copies = [{"recipient": str(one), "text": text} for one, text in self.copies.items()]
        return {"generation": self.generation, "copies": copies}


class SealingOutdated(Refused):
    """The password is not sealed to the recipients of the site as the next generation."""

    codes = ("sealing_outdated",)


class SiteInUse(Refused):
    """Agents that are not revoked, or BMCs, belong to the site."""

    codes = ("site_in_use",)
