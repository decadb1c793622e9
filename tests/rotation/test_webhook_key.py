"""The key that seals webhooks' secrets is replaced by the commands of docs/how-to/rotate-secrets.md while deliveries go on.

The public listener and the webhook sender are processes with the roles of a deployment; each is restarted where the page
says so. Events arrive all the time, and receivers verify each message with the secret that the owner was shown.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pytest

from berth.client.webhooks import verify_webhook
from berth.local.processes import orchestrator_plan, webhooks_plan
from berth.local.servers import LocalPostgres, free_port
from orchestrator.webhooks.keys import load_webhook_keys
from tests.api.calling import Caller, insert_admin_key, new_tenant
from tests.databases import copied_database
from tests.metrics_ports import get
from tests.rotation.running import Deployment, repeating
from tests.support.waiting import wait_for
from tests.webhooks.receivers import Receiver, receiving

PAGE = Path(__file__).parents[2] / "docs/how-to/rotate-secrets.md"
EVENT_TYPE = "node.online"
_APPEND = """
insert into outbox (event_type, correlation_id, tenant_id, subject, payload)
select %s, uuidv7(), %s, 'things/1', '{}' returning event_id
"""


def documented_commands() -> list[str]:
    """What the page says to do with the file, step by step, without the restarts."""
    section = PAGE.read_text().split("\n## Webhook key\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert all("--force-recreate orchestrator-public webhooks" in block for block in blocks)
    return ["\n".join(line for line in block.splitlines() if "docker compose" not in line) for block in blocks]


@dataclass
class Subscription:
    """A webhook, the secrets that its owner was shown, and the first event that belongs to it."""

    id: str
    secrets: list[str]
    since: int
    receiver: Receiver


@dataclass
class Scene:
    """The processes, one tenant, its webhooks and the events that were emitted."""

    deployed: Deployment
    tenant: Caller
    subscriptions: list[Subscription] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def emit(self) -> None:
        """One more event of the tenant, in the log."""
        values = (EVENT_TYPE, self.tenant.tenant_id)
        self.events.append(str(self.deployed.one(_APPEND, *values)))
        while self.deployed.one("select log_advance(1000)"):
            continue

    @contextmanager
    def events_throughout(self) -> Iterator[None]:
        """Emit events all the time meanwhile."""
        with repeating(self.emit, every_seconds=0.1):
            yield

    def subscribe(self, receiver: Receiver) -> None:
        """A new webhook; the API seals its secret under the first key that it has now."""
        made = self.tenant.make("/webhooks", {"url": receiver.url, "types": [EVENT_TYPE]})
        self.subscriptions.append(Subscription(made["id"], [made["secret"]], len(self.events) + 1, receiver))

    def rotate_secret(self, subscription: Subscription) -> None:
        """The owner replaces the secret, with an overlap."""
        rotated = self.tenant.make(f"/webhooks/{subscription.id}/rotate", {"overlap_seconds": 3_600})
        subscription.secrets.append(rotated["secret"])

    def restart(self) -> None:
        """The listener and the sender with the present file, one after the other."""
        for plan in (
            orchestrator_plan("public", self.deployed.endpoints, self.deployed.files, free_port()),
            webhooks_plan(self.deployed.endpoints, self.deployed.files, free_port()),
        ):
            self.deployed.start(plan, BERTH_WEBHOOK_TICK_SECONDS="0.05")

    def sealed_under_first(self) -> tuple[int, int]:
        """How many stored secrets begin with the id of the first key of the file, and how many there are."""
        prefix = load_webhook_keys(self.deployed.files.webhook_keys).prefix
        query = (
            "select count(*) filter (where starts_with(key ->> 'sealed', %s)), count(*)"
            " from webhooks, jsonb_array_elements(keys) key"
        )
        row = self.deployed.database.execute(query.encode(), (prefix,)).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def metric(self, name: str) -> str:
        """A metric of the sender."""
        text = get(self.deployed.children["webhooks"].plan.metrics_port, "/metrics")[1]
        return next(line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} "))

    def _has_every_event(self, one: Subscription) -> bool:
        return set(self.events[one.since :]) <= {message.message_id for message in one.receiver.received}

    def require_every_delivery(self) -> None:
        """Every event reached every webhook that was there, each message signed by a secret of its owner."""
        for one in self.subscriptions:
            wait_for(partial(self._has_every_event, one), "every event")
            for message in one.receiver.received:
                event = verify_webhook(message.body, message.headers, *one.secrets)
                assert event["id"] == message.message_id
            found = self.tenant.every(f"/webhooks/{one.id}/deliveries", 100)
            assert {delivery["error"] for delivery in found} == {None}, "no attempt found its key unreadable"


@pytest.fixture
def scene(postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path) -> Iterator[Scene]:
    """A listener and a sender that run, and a tenant."""
    with copied_database(postgres_server, migrated_template) as url:
        deployed = Deployment(tmp_path, url)
        try:
            deployed.start(orchestrator_plan("public", deployed.endpoints, deployed.files, free_port()))
            with httpx.Client(base_url=deployed.endpoints.api_url, timeout=30) as http:
                found = Scene(deployed, new_tenant(Caller(http, insert_admin_key(url))))
                found.restart()
                yield found
        finally:
            deployed.stop()


@pytest.mark.full
def test_the_webhook_key_is_replaced_while_deliveries_go_on(scene: Scene) -> None:
    files = scene.deployed.files
    old = load_webhook_keys(files.webhook_keys).prefix
    directory = scene.deployed.secrets.parent
    with receiving(5) as receivers:
        with scene.events_throughout():
            scene.subscribe(receivers[0])
            for step, command in enumerate(documented_commands(), 1):
                at_place = command.replace("deploy/secrets", "secrets").replace("cd ../..", "cd ..")
                subprocess.run(["/bin/sh", "-ec", at_place], cwd=directory, check=True, capture_output=True)
                scene.restart()
                scene.subscribe(receivers[step])
                scene.rotate_secret(scene.subscriptions[0])
                if step == 2:
                    wait_for(lambda: len(set(scene.sealed_under_first())) == 1, "every secret to be sealed again")
            assert len(files.webhook_keys.read_text().split()) == 1
            scene.subscribe(receivers[4])
        for _ in range(3):
            scene.emit()
        scene.require_every_delivery()
        assert scene.sealed_under_first() == (8, 8)
        assert load_webhook_keys(files.webhook_keys).prefix != old
        assert scene.deployed.one("select count(*) from webhooks where keys::text like %s", f"%{old}%") == 0
        assert scene.metric("berth_webhook_keys_unreadable") == "0.0"
