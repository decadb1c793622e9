"""Every stored operation has a position in the log: an event that carries its key, for every caller and outcome."""

from __future__ import annotations

import uuid
from typing import Any

from orchestrator.http.audited.actions import ACTIONS
from orchestrator.verification.p2_together import LOG_SPREAD_SECONDS, UNTOLD_OPERATION
from tests.api.calling import Caller, Place, enrol, fresh, new_node, new_region, one_gpu, ssh_key
from tests.api.reservations.reserving import HOLDER, act, bring_to, hold, make_overdue, seat
from tests.keyvalue.committing import Keys, put, unchanged
from tests.support.public_api import PublicApi
from tests.support.public_api import module_place as place
from tests.support.public_api import module_tenant as tenant

__all__ = ["place", "tenant"]

COMMITTED = "operation.committed"


def told(api: PublicApi, key: str) -> list[tuple[Any, ...]]:
    """Type, tenant and payload of the events with the key, in order."""
    rows = api.database.execute(
        """select event_type, tenant_id::text, payload from (
               select outbox_id, event_type, tenant_id, payload, operation_key from log
               union all select id, event_type, tenant_id, payload, operation_key from outbox
           ) e where operation_key = %s order by outbox_id""",
        (key,),
    )
    return rows.fetchall()


def untold(api: PublicApi) -> list[tuple[Any, ...]]:
    """Operations without any, as `berth verify` asks for them."""
    return api.database.execute(UNTOLD_OPERATION, {"spread_seconds": LOG_SPREAD_SECONDS}).fetchall()


def test_what_finds_nothing_left_to_do_leaves_an_event(api: PublicApi, tenant: Caller) -> None:
    for verb, state in (("confirm", "confirmed"), ("cancel", "cancelled"), ("cancel", "expired")):
        reservation, key = bring_to(api, tenant, seat(api), state), uuid.uuid4().hex
        answer = act(tenant, verb, reservation, key=key)
        assert answer.json()["result"] == "noop"
        ((event, whose, payload),) = told(api, key)
        assert (event, whose) == (COMMITTED, tenant.tenant_id)
        assert {name: payload[name] for name in ("code", "status")} == {"code": "noop", "status": 200}
        assert payload.keys() == {"code", "status", "judged_at"}
        assert act(tenant, verb, reservation, key=key).content == answer.content
        assert len(told(api, key)) == 1, "a repetition is no operation"
        request = api.database.execute(
            "select request_id from outbox where operation_key = %(key)s"
            " union all select request_id from log where operation_key = %(key)s",
            {"key": key},
        ).fetchone()
        assert request == (answer.headers["x-request-id"],)


def test_what_expires_instead_is_announced_as_both(api: PublicApi, tenant: Caller) -> None:
    reservation, key = hold(tenant, seat(api))["reservation_id"], uuid.uuid4().hex
    make_overdue(api, reservation)
    assert act(tenant, "cancel", reservation, key=key).json()["result"] == "noop"
    assert [event for event, _, _ in told(api, key)] == ["reservation.expired", COMMITTED]


def test_what_has_an_event_has_no_other(api: PublicApi, tenant: Caller, place: Place) -> None:
    key = uuid.uuid4().hex
    made = tenant.call(
        "POST", "/reservations", {"resources": [seat(api)], "holder_id": HOLDER}, key=f"hold-{key}"
    ).json()
    act(tenant, "confirm", made["reservation_id"], key=f"confirm-{key}")
    act(tenant, "cancel", made["reservation_id"], key=f"cancel-{key}")
    allocation = tenant.call("POST", "/allocations", one_gpu(tenant, place), key=f"create-{key}").json()[
        "allocation_id"
    ]
    tenant.call("POST", f"/allocations/{allocation}/release", key=f"release-{key}")
    reserved = {"sku": place.sku, "gpus": 1, "region": place.region, "holder_id": HOLDER}
    taken = tenant.call("POST", "/reservations", reserved, key=f"take-{key}").json()["reservation_id"]
    use = {"reservation_id": taken, "holder_id": HOLDER, "ssh_key_ids": one_gpu(tenant, place)["ssh_key_ids"]}
    assert tenant.call("POST", "/allocations", use, key=f"use-{key}").status_code == 201
    assert act(tenant, "confirm", taken, holder="another", key=f"refused-{key}").status_code == 409
    events = {
        "hold": ["reservation.held"], "confirm": ["reservation.confirmed"], "cancel": ["reservation.cancelled"],
        "create": ["provisioning.requested"], "release": ["provisioning.releasing.requested"], "take": ["reservation.held"],
        "use": ["provisioning.requested", "reservation.consumed"], "refused": ["operation.refused"],
    }  # fmt: skip
    assert {name: [event for event, _, _ in told(api, f"{name}-{key}")] for name in events} == events
    again = f"again-{key}"
    assert tenant.call("POST", f"/allocations/{allocation}/release", key=again).status_code == 202
    assert [(event, payload["code"]) for event, _, payload in told(api, again)] == [(COMMITTED, "ok")]


def test_every_write_has_its_place(api: PublicApi, tenant: Caller) -> None:
    """Also those without another event; and the event reveals no content."""
    admin, before = api.admin, {key for (key,) in api.database.execute("select key from operations").fetchall()}
    region, image, sku, resource = new_region(admin), fresh("image"), fresh("sku"), seat(api)
    admin.put(f"/admin/images/{image}", {"url": "https://x/y", "sha256": "ab" * 32, "shapes": ["gpu_slice"]})
    shape = {"shape": "gpu_slice", "gpu_model": "H200", "allowed_counts": [1], "default_image": image}
    admin.put(f"/admin/skus/{sku}", shape)
    other = admin.make("/admin/tenants", {"name": fresh("tenant")})["id"]
    admin.put(f"/admin/tenants/{other}/quota", {"gpus_limit": 3})
    assert admin.call("PATCH", f"/admin/tenants/{other}", {"state": "suspended"}).status_code == 200
    key = admin.make("/admin/api-keys", {"name": "k", "role": "tenant", "tenant_id": other})
    assert admin.call("DELETE", f"/admin/api-keys/{key['id']}").status_code == 204
    node = new_node(admin, region)["id"]
    assert enrol(admin, node).status_code == 200
    for verb in ("cordon", "cordon", "uncordon", "drain"):
        admin.make(f"/admin/nodes/{node}/{verb}")
    for path in (f"nodes/{node}/certificates/revoke", f"nodes/{node}/retire", f"resources/{resource}/out-of-service"):
        for _ in range(2):
            admin.make(f"/admin/{path}", {"reason": "over"})
    admin.make(f"/admin/resources/{resource}/in-service")
    mine = tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})["id"]
    for status in (204, 404):
        assert tenant.call("DELETE", f"/ssh-keys/{mine}").status_code == status
    assert tenant.get("/operations/never-used")["state"] == "unknown"
    stored = {key for (key,) in api.database.execute("select key from operations").fetchall()} - before
    assert len(stored) > 20
    assert untold(api) == []
    said = [event for key in stored for event in told(api, str(key)) if event[0] == COMMITTED]
    assert {name for _, _, payload in said for name in payload} == {"code", "status", "judged_at", "action", "object"}
    # A restore that has lost an operation finds here what it was.
    objects = {(payload["action"], payload["object"]) for _, _, payload in said}
    assert {
        ("image.put", f"images/{image}"), ("tenant.set_quota", f"tenants/{other}"), ("api_key.create", f"api-keys/{key['id']}"),
        ("api_key.revoke", f"api-keys/{key['id']}"), ("ssh_key.create", f"ssh-keys/{mine}"),
    } <= objects  # fmt: skip
    assert {action for action, _ in objects} <= set(ACTIONS.values())
    assert {whose for _, whose, _ in said} == {None, tenant.tenant_id}, "what an operator did is no tenant's"


def test_transactions_of_keys_have_theirs(api: PublicApi, tenant: Caller) -> None:
    for caller, whose in ((tenant, tenant.tenant_id), (api.admin, None)):
        keys, name = Keys(caller), uuid.uuid4().hex
        first = keys.committed([put(b"k", b"1")], request_id=f"committed-{name}")
        keys.committed([put(b"k", b"2")])
        refused = keys.commit([put(b"k", b"3")], [unchanged(b"k", first)], request_id=f"refused-{name}")
        assert refused["status"] == "not_committed"
        assert [event[:2] for event in told(api, f"committed-{name}")] == [("transaction", whose)]
        assert [event[:2] for event in told(api, f"refused-{name}")] == [("operation.refused", whose)]
        assert keys.status(f"asked-{name}")["status"] == "id_not_found"
        assert [event[:2] for event in told(api, f"asked-{name}")] == [("operation.refused", whose)], "fenced"
    assert untold(api) == []
    api.database.execute("update log set operation_key = null where operation_key = %s", (f"committed-{name}",))
    assert [row[1:] for row in untold(api)] == [(f"committed-{name}", "committed")], "an operators' one too"
    api.database.execute(
        "update log set operation_key = %s where operation_key is null and event_type = 'transaction'",
        (f"committed-{name}",),
    )
