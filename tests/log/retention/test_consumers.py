"""Operators list the consumers that keep the log, and remove abandoned ones (docs/reference/log-retention.md)."""

from __future__ import annotations

import httpx

from tests.api.calling import Caller, fresh, new_tenant, problem, refusal
from tests.log.retention.partitions import append, head
from tests.log.retention.policies import put, send
from tests.support.public_api import PublicApi


def test_a_consumer_that_will_not_come_again_is_forgotten_on_the_record(api: PublicApi) -> None:
    name = fresh("trial")
    append(api.database, 3)
    api.database.execute("insert into consumer_positions (consumer, version) values (%s, 1)", (name,))

    def held() -> list[object]:
        return [row[0] for row in api.database.execute("select name from log_cursors where name = %s", (name,))]

    listed = [one["consumer"] for one in api.admin.every("/admin/consumers", 1)]
    assert {"berth-relay", "metering", name} <= set(listed)
    assert listed == sorted(listed)
    assert held() == [name]
    path = f"/admin/consumers/{name}/forget"
    problem(api.admin.call("POST", path, {}), 422, "invalid")
    answer = api.admin.call("POST", path, {"reason": "the trial is over"}, key=name)
    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    assert held() == [], "it holds nothing any more"
    assert api.admin.call("POST", path, {"reason": "the trial is over"}, key=name).json() == answer.json()
    problem(api.admin.call("POST", path, {"reason": "again"}), 404, "not_found")
    entries = api.admin.get("/admin/audit", subject=f"consumers/{name}")["items"]
    (entry,) = [entry for entry in entries if entry["code"] == "ok"]
    assert (entry["action"], entry["detail"]) == ("consumer.forget", {"version": 1, "reason": "the trial is over"})


def test_berths_own_consumers_and_tenants_hands_are_kept_off(api: PublicApi) -> None:
    for own in ("berth-relay", "metering"):
        assert refusal(api.admin.call("POST", f"/admin/consumers/{own}/forget", {"reason": "no"})) == (
            409,
            "invalid_state",
        )
    tenant = new_tenant(api.admin)
    assert refusal(tenant.call("GET", "/admin/consumers")) == (403, "forbidden")
    assert refusal(tenant.call("POST", "/admin/consumers/x/forget", {"reason": "no"})) == (403, "forbidden")


def test_operators_see_a_tenants_policies_and_tenants_only_their_own(api: PublicApi) -> None:
    tenant, other = new_tenant(api.admin), new_tenant(api.admin)
    append(api.database, 1)
    assert put(tenant, "backup", head(api.database)).status_code == 201

    def listed(caller: Caller, tenant_id: str | None) -> httpx.Response:
        headers = {"authorization": f"Bearer {caller.key}"}
        return caller.http.get(f"/v1/retention?tenant_id={tenant_id}", headers=headers)

    shown = listed(api.admin, tenant.tenant_id).json()
    assert shown == send(tenant, "GET").json()
    assert [policy["policy_id"] for policy in shown] == ["backup"]
    assert listed(api.admin, other.tenant_id).json() == []
    assert listed(tenant, tenant.tenant_id).json() == shown
    problem(listed(other, tenant.tenant_id), 404, "not_found")
