"""The sender of webhooks stops with the right to receive, and sends to no port but those of HTTPS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, problem
from tests.webhooks.receivers import Receiver, receiving
from tests.webhooks.stage import WebhookStage, open_stage

TYPES = ["node.online"]
"""Of the events that a test appends; writes of the API leave others."""


@pytest.fixture
def stage(postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path) -> Iterator[WebhookStage]:
    with open_stage(postgres_server, migrated_template, tmp_path) as opened:
        yield opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as (one,):
        yield one


def one_round(stage: WebhookStage) -> None:
    """What a dispatcher does in one round, to the end of its attempts."""
    dispatcher = stage.dispatcher()

    async def scene() -> None:
        while await dispatcher.round():
            continue
        await dispatcher.drain()

    stage.run(scene)


def test_a_suspended_tenants_webhooks_pause(stage: WebhookStage, receiver: Receiver) -> None:
    tenant, neighbour = stage.tenant(), stage.tenant()
    stage.webhook(tenant, receiver, types=TYPES)
    stage.append(tenant)
    stage.dispatch()
    assert len(receiver.received) == 1
    path = f"/admin/tenants/{tenant.tenant_id}"
    webhook = tenant.make("/webhooks", {"url": receiver.url, "types": TYPES})
    tenant.call("POST", f"/webhooks/{webhook['id']}/test")
    assert stage.admin.call("PATCH", path, {"state": "suspended"}).status_code == 200
    stage.append(tenant)
    one_round(stage)
    assert len(receiver.received) == 1, "neither what was pending nor what came after"
    stage.webhook(neighbour, receiver, types=TYPES)
    stage.append(neighbour)
    one_round(stage)
    assert len(receiver.received) == 2, "another tenant's are sent meanwhile"
    assert stage.admin.call("PATCH", path, {"state": "active"}).status_code == 200
    stage.dispatch()
    assert len(receiver.received) == 5, "the test, and the event for both webhooks"


def test_an_operators_webhook_stops_with_the_key_that_created_it(stage: WebhookStage, receiver: Receiver) -> None:
    made = stage.admin.make("/admin/api-keys", {"name": "leaves", "role": "admin"})
    leaver = Caller(stage.http, made["key"])
    webhook, other = stage.webhook(leaver, receiver, types=TYPES), stage.webhook(stage.admin, receiver, types=TYPES)
    tenant = stage.tenant()
    own = stage.webhook(tenant, receiver, types=TYPES)
    assert stage.admin.call("DELETE", f"/admin/api-keys/{made['id']}").status_code == 204
    stage.append(tenant)
    stage.dispatch()
    assert len(receiver.received) == 2, "the other operator's and the tenant's"
    stopped = stage.admin.get(f"/webhooks/{webhook['id']}")
    assert (stopped["state"], stopped["disabled_reason"]) == ("disabled", "key_revoked")
    assert stage.admin.get(f"/webhooks/{other['id']}")["state"] == "enabled"
    assert tenant.get(f"/webhooks/{own['id']}")["state"] == "enabled"
    revoked = [one for one in stage.admin.every("/admin/audit", 500) if one["action"] == "api_key.revoke"]
    assert [one["detail"] for one in revoked] == [{"webhooks_disabled": 1}]
    assert stage.admin.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "enabled"}).status_code == 200
    stage.append(tenant)
    stage.dispatch()
    assert len(receiver.received) == 5


def test_a_tenants_webhook_survives_the_rotation_of_its_keys(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    stage.webhook(tenant, receiver, types=TYPES)
    for key in stage.admin.every("/admin/api-keys", 500, tenant_id=tenant.tenant_id):
        stage.admin.call("DELETE", f"/admin/api-keys/{key['id']}")
    stage.append(tenant)
    stage.dispatch()
    assert len(receiver.received) == 1


def test_no_port_but_those_of_https_is_named(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path
) -> None:
    with open_stage(postgres_server, migrated_template, tmp_path, webhook_ports=[443, 8443]) as stage:
        tenant = stage.tenant()
        for url in ("https://example.com:22/", "https://example.com:6379/", "https://example.com:444/"):
            refused = problem(tenant.call("POST", "/webhooks", {"url": url}), 422, "webhook_url_refused")
            assert refused["reason"] == "port"
        for url in ("https://example.com/", "https://example.com:443/", "https://example.com:8443/"):
            assert tenant.call("POST", "/webhooks", {"url": url}).status_code == 201


def test_no_port_but_those_of_https_is_connected_to(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=TYPES)
    stage.append(tenant)
    stage.dispatch(stage.dispatcher(ports=(443, 8443)))
    assert receiver.received == []
    (delivery,) = tenant.get(f"/webhooks/{webhook['id']}/deliveries")["items"]
    assert delivery["error"] == "port"
