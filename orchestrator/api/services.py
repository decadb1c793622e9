"""What endpoints reach through the application: made once in `orchestrator/app.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from orchestrator.execution import Context
from orchestrator.settings import Settings
from orchestrator.trust.certificates import NodeAuthority

if TYPE_CHECKING:
    from orchestrator.api.authentication import Credentials
    from orchestrator.api.dispatching import Dispatcher
    from orchestrator.api.gate import Gate
    from orchestrator.api.gathering import Gatherer
    from orchestrator.api.log.acknowledging import Acknowledging
    from orchestrator.api.log.feed import Feed
    from orchestrator.api.log.head import LogHead
    from orchestrator.catalogue_cache import CatalogueCache
    from orchestrator.commands.hold_resources import AskedHold
    from orchestrator.store.confirming import Confirm
    from orchestrator.store.placing import Create
    from orchestrator.store.transactions import Commit


@dataclass(frozen=True, slots=True)
class Services:
    """One process's parts."""

    settings: Settings
    context: Context
    credentials: Credentials
    catalogue: CatalogueCache
    gate: Gate
    creates: Gatherer[Create]
    holds: Gatherer[AskedHold]
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
