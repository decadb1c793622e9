"""The whole application and dispatchers over one database, in one event loop; rounds of a dispatcher are the test's."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from starlette.testclient import TestClient

from berth.local.servers import LocalPostgres
from migrations.roles import Role
from orchestrator.app import build_services, public_listener
from orchestrator.http.services import Services
from orchestrator.operations.execution import Context
from orchestrator.settings import Settings
from orchestrator.webhooks.keys import WebhookKeys
from tests.api.calling import Caller, insert_admin_key, new_tenant
from tests.databases import as_role, copied_database
from tests.support.public_api import settings_over
from tests.webhooks.receivers import Receiver
from worker.webhooks.app import make_context
from worker.webhooks.destinations import Resolver
from worker.webhooks.dispatching import Bounds, Dispatcher
from worker.webhooks.sending import Sender
from worker.webhooks.settings import WebhookSettings

BOUNDS = Bounds(
    tick_seconds=0.05, timeout_seconds=5.0, attempts_max=64, tenant_attempts_max=16, endpoint_attempts_max=4,
    pending_max=50, failing_seconds_max=1_000.0,
)  # fmt: skip
_numbers = itertools.count(1)


@dataclass
class WebhookStage:
    """An API, its database, and dispatchers to be made."""

    http: TestClient
    services: Services
    admin: Caller
    database: psycopg.Connection[Any]
    sending: Context
    """The webhook sender's, as its role."""
    url: str
    resolver: Resolver = field(default_factory=lambda: Resolver(16))

    def tenant(self) -> Caller:
        """A new one."""
        return new_tenant(self.admin)

    def webhook(self, owner: Caller, receiver: Receiver, **members: Any) -> Any:
        """The owner's webhook to this receiver."""
        return owner.make("/webhooks", {"url": receiver.url, **members})

    def append(self, tenant: Caller | None, number: int = 1, event_type: str = "node.online") -> int:
        """Leave events of the tenant's, or of the operators', in the log; answers its head."""
        self.database.execute(
            "insert into outbox (event_type, correlation_id, tenant_id, subject, payload) "
            "select %s, uuidv7(), %s, 'things/' || n, jsonb_build_object('n', n, 'é', '<\"\\>') from generate_series(1, %s) n",
            (event_type, None if tenant is None else tenant.tenant_id, number),
        )
        return self.sequence()

    def sequence(self) -> int:
        """Give what waits its version; the head."""
        while self.one("select log_advance(1000)"):
            continue
        return int(self.one("select version from log_head"))

    def one(self, query: str, *values: object) -> Any:
        """The one value that a query answers."""
        row = self.database.execute(query.encode(), values).fetchone()
        assert row is not None
        return row[0]

    def dispatcher(
        self,
        *,
        private_allowed: bool = True,
        http_allowed: bool = True,
        ports: Sequence[int] = (),
        tls: ssl.SSLContext | None = None,
        resolve: Any = None,
        keys: WebhookKeys | None = None,
        **bounds: Any,
    ) -> Dispatcher:
        """One more, with these bounds."""
        opening = keys or self.services.webhook_keys
        assert opening is not None
        wanted = replace(BOUNDS, **bounds)
        sender = Sender(
            resolve or self.resolver.resolve, timeout_seconds=wanted.timeout_seconds, http_allowed=http_allowed,
            private_allowed=private_allowed, ports=ports, tls=tls or ssl.create_default_context(),
        )  # fmt: skip
        return Dispatcher(self.sending, opening, sender, wanted)

    def dispatch(self, *dispatchers: Dispatcher) -> None:
        """Rounds until nothing is new or due, and every attempt has ended."""
        for dispatcher in dispatchers or (self.dispatcher(),):
            self.run(partial(_all, dispatcher, self))

    def run(self, work: Callable[[], Any]) -> Any:
        """In the application's event loop."""
        assert self.http.portal is not None
        return self.http.portal.call(work)

    def due_now(self, webhook_id: str) -> None:
        """As if the pauses were over."""
        self.database.execute(
            "update webhook_deliveries set next_attempt_at = clock_timestamp() where webhook_id = %s and state = 'pending'",
            (webhook_id,),
        )

    def deliveries(self, owner: Caller, webhook: Any) -> list[Any]:
        """The deliveries that the owner reads, oldest first."""
        return owner.every(f"/webhooks/{webhook['id']}/deliveries", 50)[::-1]


async def _all(dispatcher: Dispatcher, stage: WebhookStage) -> None:
    while True:
        unfinished = await dispatcher.round()
        await dispatcher.drain()
        due = stage.one(
            "select count(*) from webhook_deliveries d join webhooks w on w.id = d.webhook_id "
            "where d.state = 'pending' and d.next_attempt_at <= clock_timestamp() and w.state <> 'deleted'"
        )
        if not unfinished and not due:
            return


async def _sending_over(url: str) -> Context:
    """As the webhook sender connects."""
    settings = WebhookSettings(database_url=as_role(url, Role.WEBHOOKS), webhook_key_file=Path("none"))
    return make_context(settings)


@contextmanager
def open_stage(
    postgres_server: LocalPostgres, template: str, directory: Path, **settings: Any
) -> Iterator[WebhookStage]:
    """An application that allows webhooks to any address, unless `settings` say otherwise."""
    with copied_database(postgres_server, template) as url:
        allowed = {"webhook_http_allowed": True, "webhook_private_addresses_allowed": True, "webhook_pending_max": 50,
                   "webhook_ports": []}  # fmt: skip
        known = settings_over(url, directory).model_dump(exclude={"gate"})
        services = build_services(Settings(**{**known, **allowed, **settings}))
        with TestClient(public_listener(services), raise_server_exceptions=False) as http:
            with psycopg.connect(url, autocommit=True) as database:
                assert http.portal is not None
                sending = http.portal.call(_sending_over, url)
                stage = WebhookStage(http, services, Caller(http, insert_admin_key(url)), database, sending, url)
                yield stage
                stage.resolver.close()
                http.portal.call(sending.database.close)
            http.portal.call(services.context.database.close)


def numbers(items: Sequence[Any]) -> list[int]:
    """The numbers of deliveries."""
    return [item["number"] for item in items]
