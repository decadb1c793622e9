"""What endpoints reach through the application: made once in `orchestrator/app.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from orchestrator.nodes.certificates import NodeAuthority
from orchestrator.operations.execution import Context
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.catalogue.cache import CatalogueCache
    from orchestrator.edge.batching import Gatherer
    from orchestrator.edge.gate import Gate
    from orchestrator.http.authentication import Credentials
    from orchestrator.keyvalue.store.transactions import Commit
    from orchestrator.log.feed.feed import Feed
    from orchestrator.log.head import LogHead
    from orchestrator.notifications.acknowledgements import Acknowledging
    from orchestrator.placement.store.placing import Create
    from orchestrator.reservations.hold_requests import HoldRequest
    from orchestrator.reservations.store.confirming import Confirm
    from orchestrator.tasks.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True)
class Services:
    """One process's parts."""

    settings: Settings
    context: Context
    credentials: Credentials
    catalogue: CatalogueCache
    gate: Gate
    creates: Gatherer[Create]
    holds: Gatherer[HoldRequest]
    confirms: Gatherer[Confirm]
    commits: Gatherer[Commit]
    dispatcher: Dispatcher
    log_head: LogHead
    feed: Feed
    acknowledging: Acknowledging
    authority: NodeAuthority | None


async def services_of(request: Request) -> Services:
    """The parts of the process that serves this request. Async, because FastAPI runs plain functions in a thread."""
    services: Services = request.app.state.services
    return services


Parts = Annotated[Services, Depends(services_of)]
