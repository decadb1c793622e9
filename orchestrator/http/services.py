"""What endpoints reach through the application: made once in `orchestrator/app.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Depends, Request

from orchestrator.database.reserve import platform
from orchestrator.database.row_security import PLATFORM, tenants_setting
from orchestrator.http.asgi import Scope, State
from orchestrator.operations.execution import Context
from orchestrator.problems import NotFound
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from uuid import UUID

    from berth.process.combined_calls import CombinedCalls
    from node_agent.protocol import HeartbeatAnswer
    from orchestrator.catalogue.cache import CatalogueCache
    from orchestrator.consoles.hub import ConsoleHub
    from orchestrator.database.replicas.watch import ReplicaWatch
    from orchestrator.database.transactions import Database
    from orchestrator.edge.batching import Batcher
    from orchestrator.edge.gate import Gate
    from orchestrator.http.audited.key_uses import KeyUses
    from orchestrator.http.audited.recorder import RequestRecorder
    from orchestrator.http.authentication import Credentials
    from orchestrator.http.object_owners import ObjectOwners
    from orchestrator.http.principal_limits import PrincipalLimits
    from orchestrator.http.single_flight import SingleFlightCache
    from orchestrator.keyvalue.store.transactions import Commit
    from orchestrator.log.feed.feed import Feed
    from orchestrator.log.head import LogHead
    from orchestrator.notifications.acknowledgements import AcknowledgementWriter
    from orchestrator.placement.store.placing import Create
    from orchestrator.reservations.hold_requests import HoldRequest
    from orchestrator.reservations.store.confirming import Confirm
    from orchestrator.tasks.dispatcher import Dispatcher
    from orchestrator.tasks.key_set_file import CarriedKeySet, KeySetFile
    from orchestrator.tasks.store.heartbeats import NodeReport
    from orchestrator.tasks.store.polls import Polling
    from orchestrator.tenants.principals import Principal
    from orchestrator.webhooks.keys import WebhookKeys


@dataclass(frozen=True, slots=True)
class Services:
    """One process's parts."""

    settings: Settings
    context: Context
    credentials: Credentials
    limits: PrincipalLimits
    owners: ObjectOwners
    catalogue: CatalogueCache
    gate: Gate
    creates: Batcher[Create]
    holds: Batcher[HoldRequest]
    confirms: Batcher[Confirm]
    commits: Batcher[Commit]
    polls: CombinedCalls[tuple[UUID, str], Polling | None]
    heartbeats: CombinedCalls[NodeReport, HeartbeatAnswer | None]
    dispatcher: Dispatcher
    consoles: ConsoleHub
    log_head: LogHead
    feed: Feed
    replica_watch: ReplicaWatch | None
    """Keeps the standbys that serve reads examined; None: the primary serves all."""
    acknowledging: AcknowledgementWriter
    recorder: RequestRecorder
    key_uses: KeyUses
    key_set: KeySetFile | None
    """What agents trust, signed by the offline root; None: this process enrols no nodes."""
    enrolment_pin: str | None
    """SHA-256 of the public key of the CA that enrolling agents require of the public listener; None: not known."""
    enrolment_ca: str | None
    """That CA as PEM, for the media of deploy systems; None: not known."""
    webhook_keys: WebhookKeys | None
    """Seal the secrets of webhooks; None: this process makes none."""
    schema: SingleFlightCache[None, None]
    """Checks the schema for `/ok`: one query at a time."""


RESPONSE_VERSION: Final = "response_version"
ENDING_VERB: Final = "ending_verb"
SOURCE: Final = "source"
"""Members of a request's state that the edge sets (orchestrator/edge/edge.py)."""
TAKE_TURN: Final = "take_turn"
"""Member of a request's state: a callable that returns when the request may run; absent if it has its turn."""
CALLER: Final = "caller"
"""Member of a request's state: its authenticated principal."""


def source_of(scope: Scope) -> str | None:
    """The caller's address, if it is known."""
    source: str | None = scope.get("state", {}).get(SOURCE)
    return source


def required_key_set(parts: Services) -> CarriedKeySet:
    """The key set that agents get, or `NotFound` where this process has none."""
    if parts.key_set is None:
        raise NotFound("this process enrols no nodes; it has no BERTH_KEY_SET_FILE")
    return parts.key_set.current()


def services_for(services: Services, scope: Scope) -> Services:
    """The process's parts on behalf of the request of this ASGI scope: its reads note the response's version.

    From the moment when its caller is known, its transactions may touch rows of the caller's tenant, or those of all for an
    operator. They may take the reserve if the caller owns what the request ends.
    """
    state = scope.get("state", {})
    version, verb = state.get(RESPONSE_VERSION), state.get(ENDING_VERB, "")
    context, without_caller = services.context, services.context.database
    is_platform = without_caller.tenants == PLATFORM  # reports of nodes have no caller
    database = context.database.for_request(
        version,
        verb,
        lambda: _tenants_of(state, without_caller),
        platform if is_platform else lambda: services.owners.claimant(state.get(CALLER), scope["path"]),
    )
    return replace(services, context=replace(context, database=database))


def _tenants_of(state: State, without_caller: Database) -> str | None:
    caller: Principal | None = state.get(CALLER)
    if caller is None:
        return without_caller.tenants
    return PLATFORM if caller.tenant_id is None else tenants_setting([caller.tenant_id])


async def services_of(request: Request) -> Services:
    """The parts of the process, on behalf of this request. Async, because FastAPI runs plain functions in a thread."""
    return services_for(request.app.state.services, request.scope)


Parts = Annotated[Services, Depends(services_of)]
