"""The API of webhooks: ownership, the secret returned once, bounds, and bad input."""

from __future__ import annotations

from typing import Any

import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import at_once, new_tenant, problem, refusal
from tests.webhooks.receivers import Receiver, answers
from tests.webhooks.stage import WebhookStage, open_stage

URL = "https://hooks.example.com/berth?token=abc"


def test_whose_they_are(stage: WebhookStage) -> None:
    one, other = stage.tenant(), stage.tenant()
    mine = one.make("/webhooks", {"url": URL, "description": "for billing"})
    of_operators = stage.admin.make("/webhooks", {"url": URL})
    assert [webhook["id"] for webhook in one.get("/webhooks")["items"]] == [mine["id"]]
    assert other.get("/webhooks")["items"] == []
    assert of_operators["id"] in [webhook["id"] for webhook in stage.admin.get("/webhooks")["items"]]
    for caller, webhook in ((other, mine), (other, of_operators), (one, of_operators), (stage.admin, mine)):
        path = f"/webhooks/{webhook['id']}"
        for method, suffix, body in (
            ("GET", "", None), ("PATCH", "", {"state": "disabled"}), ("DELETE", "", None), ("POST", "/rotate", {}),
            ("POST", "/test", {}), ("POST", "/replay", {"since": "2026-01-01T00:00:00Z"}), ("GET", "/deliveries", None),
            ("GET", "/deliveries/1", None), ("POST", "/deliveries/1/replay", None),
        ):  # fmt: skip
            problem(caller.call(method, path + suffix, body), 404, "not_found")
    assert one.get(f"/webhooks/{mine['id']}") == {name: mine[name] for name in mine if name != "secret"}
    actions = [
        entry["action"]
        for entry in stage.admin.get("/admin/audit", subject=f"webhooks/{of_operators['id']}", outcome="ok")["items"]
        if not entry["action"].endswith(".read")
    ]
    assert actions == ["webhook.create"]
    assert stage.admin.call("DELETE", f"/webhooks/{of_operators['id']}").status_code == 204
    problem(stage.admin.call("GET", f"/webhooks/{of_operators['id']}"), 404, "not_found")


def test_a_secret_is_returned_once_and_stored_nowhere_in_the_clear(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    first = tenant.call("POST", "/webhooks", {"url": receiver.url}, key="hook-1")
    again = tenant.call("POST", "/webhooks", {"url": receiver.url}, key="hook-1")
    made = first.json()
    assert made["secret"].startswith("whsec_")
    assert again.json() == made
    assert again.headers["idempotent-replayed"] == "true"
    assert len(tenant.get("/webhooks")["items"]) == 1
    problem(tenant.call("POST", "/webhooks", {"url": URL}, key="hook-1"), 422, "operation_conflict")
    rotated = tenant.make(f"/webhooks/{made['id']}/rotate")["secret"]
    keyed = tenant.make("/webhooks", {"url": receiver.url, "signing": "ed25519"})
    receiver.will(answers(500, body=b"who are you"))
    stage.append(tenant)
    stage.dispatch()
    assert "secret" not in tenant.get(f"/webhooks/{made['id']}")
    everything = stage.one(
        "select (select json_agg(o) from operations o)::text || (select json_agg(w) from webhooks w)::text "
        "|| (select json_agg(d) from webhook_deliveries d)::text || coalesce((select json_agg(a) from audit a)::text, '') "
        "|| coalesce((select json_agg(l) from log l)::text, '')"
    )
    for secret in (made["secret"], rotated):
        assert secret not in everything
        assert secret.removeprefix("whsec_") not in everything
    assert "whsk_" not in everything
    assert keyed["public_keys"][0] in everything


def test_log_lines_hold_neither_secrets_nor_urls(
    stage: WebhookStage, receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    tenant = stage.tenant()
    made = stage.webhook(tenant, receiver)
    nowhere = tenant.make("/webhooks", {"url": "http://127.0.0.1:1/hook?token=s3cret"})
    stage.append(tenant)
    stage.dispatch()
    told = "".join(capfd.readouterr())
    assert made["id"] in told
    assert nowhere["id"] in told
    assert "s3cret" not in told
    assert "whsec_" not in told


@pytest.mark.parametrize(
    "body",
    [{}, {"url": None}, {"url": 7}, {"url": "nonsense"}, {"url": URL, "types": "node.*"}, {"url": URL, "types": ["nonsense"]},
     {"url": URL, "types": ["*"]}, {"url": URL, "types": ["node."]}, {"url": URL, "types": ["node.online"] * 51},
     {"url": URL, "signing": "rsa"},
     {"url": URL, "secret": "whsec_AAAA"}, {"url": URL, "description": ""}, {"url": URL, "description": "a\u0000b"},
     {"url": "https://e.example/" + "a" * 2_000}, []],
    ids=range(15),
)  # fmt: skip
def test_bad_bodies_change_nothing(stage: WebhookStage, body: Any) -> None:
    tenant = stage.tenant()
    problem(tenant.call("POST", "/webhooks", body), 422, "invalid")
    assert tenant.get("/webhooks")["items"] == []


def test_other_bad_input(stage: WebhookStage) -> None:
    tenant = stage.tenant()
    made = tenant.make("/webhooks", {"url": URL})
    path = f"/webhooks/{made['id']}"
    for body in ({"state": "deleted"}, {"state": "gone"}, {"types": ["x"]}, {"url": "x"}, {"signing": "hmac"}):
        problem(tenant.call("PATCH", path, body), 422, "invalid")
    for overlap in (-1, 10**9, "1", 1.5, True):
        problem(tenant.call("POST", f"{path}/rotate", {"overlap_seconds": overlap}), 422, "invalid")
    for since in ("yesterday", 1, "2026-01-01T00:00:00", None):
        problem(tenant.call("POST", f"{path}/replay", {"since": since}), 422, "invalid")
    for number in ("0", "-1", str(2**63), "x"):
        problem(tenant.call("GET", f"{path}/deliveries/{number}"), 422, "invalid")
    problem(tenant.call("GET", f"{path}/deliveries/7"), 404, "not_found")
    problem(tenant.call("POST", f"{path}/deliveries/7/replay"), 404, "not_found")
    problem(tenant.call("GET", f"{path}/deliveries", cursor="x"), 400, "invalid_cursor")
    problem(tenant.call("GET", f"{path}/deliveries", state="lost"), 422, "invalid")
    problem(tenant.call("GET", "/webhooks/nonsense"), 422, "invalid")
    unchanged = tenant.get(path)
    assert unchanged == {name: made[name] for name in made if name != "secret"}
    changed = tenant.call("PATCH", path, {"types": ["node.*"], "description": "d"}).json()
    assert (changed["types"], changed["description"], changed["url"]) == (["node.*"], "d", URL)
    assert tenant.call("PATCH", path, {"types": []}).json()["types"] == []


def test_bounds(postgres_server: LocalPostgres, migrated_template: str, tmp_path: Any, receiver: Receiver) -> None:
    with open_stage(postgres_server, migrated_template, tmp_path, webhooks_max=3, webhook_pending_max=4) as stage:
        tenant = new_tenant(stage.admin)
        outcomes = at_once(*[lambda: tenant.call("POST", "/webhooks", {"url": receiver.url}).status_code] * 6)
        assert sorted(outcomes) == [201, 201, 201, 409, 409, 409]
        problem(tenant.call("POST", "/webhooks", {"url": URL}), 409, "quota_exceeded")
        assert new_tenant(stage.admin).call("POST", "/webhooks", {"url": URL}).status_code == 201
        first = tenant.get("/webhooks", limit=2)["items"][0]
        assert len(tenant.every("/webhooks", 2)) == 3
        path = f"/webhooks/{first['id']}"
        for _ in range(4):
            tenant.make(f"{path}/test")
        problem(tenant.call("POST", f"{path}/test"), 409, "webhook_busy")
        problem(tenant.call("POST", f"{path}/replay", {"since": "2026-01-01T00:00:00Z"}), 409, "webhook_busy")
        assert tenant.call("DELETE", path).status_code == 204
        assert tenant.call("POST", "/webhooks", {"url": URL}).status_code == 201


def test_without_a_webhook_key_there_are_none(stage: WebhookStage) -> None:
    tenant = stage.tenant()
    services = stage.services
    keys = services.webhook_keys
    object.__setattr__(services, "webhook_keys", None)
    try:
        assert refusal(tenant.call("POST", "/webhooks", {"url": URL})) == (503, "webhooks_unavailable")
    finally:
        object.__setattr__(services, "webhook_keys", keys)
