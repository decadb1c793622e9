"""Which subscribers run: for each tenant and the operators one of the feed and one of the socket, and some special ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from berth.client import AsyncClient
from tests.campaign.history import History
from tests.campaign.listening.feeds import FeedSubscriber
from tests.campaign.listening.late import LateSubscriber
from tests.campaign.listening.sockets import SocketSubscriber
from tests.campaign.listening.subscribers import HttpSubscriber
from tests.campaign.stage import Stage

PORT = re.compile(r":(\d+)$")


@dataclass(frozen=True)
class Tenancy:
    """A principal that subscribes, with a client for each API process; `tenant` None: the operators."""

    tenant: str | None
    key: str
    clients: Sequence[AsyncClient]

    @property
    def name(self) -> str:
        """For names of subscribers."""
        return "operators" if self.tenant is None else f"tenant-{self.tenant[-6:]}"


def subscribers_of(stage: Stage, tenancies: Sequence[Tenancy], history: History) -> list[HttpSubscriber]:
    """They reach the API processes through links, which faults may cut."""
    urls = [_linked(stage, number, url) for number, url in enumerate(stage.api_urls, 1)]
    found: list[HttpSubscriber] = []
    for number, owner in enumerate(tenancies):
        found.append(FeedSubscriber(f"feed {number}", urls, owner.key, owner.tenant, history))
        found.append(SocketSubscriber(f"socket {number}", urls, owner.key, owner.tenant, history))
    operators, first, *_ = tenancies
    found.append(FeedSubscriber("feed of commits", urls, first.key, first.tenant, history, types=["transaction"]))
    found.append(
        SocketSubscriber(
            "socket of ends", urls, operators.key, None, history, types=["provisioning.releasing.completed"]
        )
    )
    found += [
        LateSubscriber(f"late {number}", urls, owner.key, owner.tenant, history, owner.clients)
        for number, owner in enumerate((operators, first))
    ]
    return found


def _linked(stage: Stage, number: int, url: str) -> str:
    found = PORT.search(url)
    assert found is not None, url
    return f"http://127.0.0.1:{stage.links.make(f'subscribers > api-{number}', int(found[1])).port}"
