"""The sender of webhooks stops with the right to receive, and sends to no port but those of HTTPS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, problem
from tests.webhooks.desk import Desk, open_desk
from tests.webhooks.receivers import Receiver, receiving

TYPES = ["node.online"]
"""Of the events that a test appends; writes of the API leave others."""


@pytest.fixture
def desk(postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path) -> Iterator[Desk]:
    with open_desk(postgres_server, migrated_template, tmp_path) as opened:
        yield opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as (one,):
        yield one


def one_round(desk: Desk) -> None:
    """What a dispatcher does in one round, to the end of its attempts."""
    dispatcher = desk.dispatcher()

    async def scene() -> None:
        while await dispatcher.round():
            continue
        await dispatcher.drain()

    desk.run(scene)


def test_a_suspended_tenants_webhooks_pause(desk: Desk, receiver: Receiver) -> None:
    tenant, neighbour = desk.tenant(), desk.tenant()
    desk.webhook(tenant, receiver, types=TYPES)
    desk.append(tenant)
    desk.dispatch()
    assert len(receiver.received) == 1
    path = f"/admin/tenants/{tenant.tenant_id}"
    webhook = tenant.make("/webhooks", {"url": receiver.url, "types": TYPES})
    tenant.call("POST", f"/webhooks/{webhook['id']}/test")
    assert desk.admin.call("PATCH", path, {"state": "suspended"}).status_code == 200
    desk.append(tenant)
    one_round(desk)
    assert len(receiver.received) == 1, "neither what was pending nor what came after"
    desk.webhook(neighbour, receiver, types=TYPES)
    desk.append(neighbour)
    one_round(desk)
    assert len(receiver.received) == 2, "another tenant's are sent meanwhile"
    assert desk.admin.call("PATCH", path, {"state": "active"}).status_code == 200
    desk.dispatch()
    assert len(receiver.received) == 5, "the test, and the event for both webhooks"


def test_an_operators_webhook_stops_with_the_key_that_created_it(desk: Desk, receiver: Receiver) -> None:
    made = desk.admin.make("/admin/api-keys", {"name": "leaves", "role": "admin"})
    leaver = Caller(desk.http, made["key"])
    webhook, other = desk.webhook(leaver, receiver, types=TYPES), desk.webhook(desk.admin, receiver, types=TYPES)
    tenant = desk.tenant()
    own = desk.webhook(tenant, receiver, types=TYPES)
    assert desk.admin.call("DELETE", f"/admin/api-keys/{made['id']}").status_code == 204
    desk.append(tenant)
    desk.dispatch()
    assert len(receiver.received) == 2, "the other operator's and the tenant's"
    stopped = desk.admin.get(f"/webhooks/{webhook['id']}")
    assert (stopped["state"], stopped["disabled_reason"]) == ("disabled", "key_revoked")
    assert desk.admin.get(f"/webhooks/{other['id']}")["state"] == "enabled"
    assert tenant.get(f"/webhooks/{own['id']}")["state"] == "enabled"
    revoked = [one for one in desk.admin.every("/admin/audit", 500) if one["action"] == "api_key.revoke"]
    assert [one["detail"] for one in revoked] == [{"webhooks_disabled": 1}]
    assert desk.admin.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "enabled"}).status_code == 200
    desk.append(tenant)
    desk.dispatch()
    assert len(receiver.received) == 5


def test_a_tenants_webhook_survives_the_rotation_of_its_keys(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    desk.webhook(tenant, receiver, types=TYPES)
    for key in desk.admin.every("/admin/api-keys", 500, tenant_id=tenant.tenant_id):
        desk.admin.call("DELETE", f"/admin/api-keys/{key['id']}")
    desk.append(tenant)
    desk.dispatch()
    assert len(receiver.received) == 1


def test_no_port_but_those_of_https_is_named(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path
) -> None:
    with open_desk(postgres_server, migrated_template, tmp_path, webhook_ports=[443, 8443]) as desk:
        tenant = desk.tenant()
        for url in ("https://example.com:22/", "https://example.com:6379/", "https://example.com:444/"):
            refused = problem(tenant.call("POST", "/webhooks", {"url": url}), 422, "webhook_url_refused")
            assert refused["reason"] == "port"
        for url in ("https://example.com/", "https://example.com:443/", "https://example.com:8443/"):
            assert tenant.call("POST", "/webhooks", {"url": url}).status_code == 201


def test_no_port_but_those_of_https_is_connected_to(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=TYPES)
    desk.append(tenant)
    desk.dispatch(desk.dispatcher(ports=(443, 8443)))
    assert receiver.received == []
    (delivery,) = tenant.get(f"/webhooks/{webhook['id']}/deliveries")["items"]
    assert delivery["error"] == "port"
