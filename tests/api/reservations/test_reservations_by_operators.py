"""An operator confirms and cancels for a tenant: as its holder would, on the record, and not without the tenant's name."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.calling import Caller, fresh, new_tenant, problem
from tests.support.public_api import PublicApi
from tests.support.public_api import module_tenant as tenant

__all__ = ["tenant"]

HOLDER = "order-17/agent-3"


def held(api: PublicApi, tenant: Caller) -> tuple[str, str]:
    """A hold of the tenant's on a newly registered resource; the ids of both."""
    seat = api.admin.make("/admin/resources", {"id": fresh("seat")})["id"]
    return tenant.make("/reservations", {"resources": [seat], "holder_id": HOLDER})["reservation_id"], seat


def act(caller: Caller, verb: str, reservation: str, tenant: Caller | None, holder: str = HOLDER, **more: Any) -> Any:
    """Confirm or cancel, whatever comes of it."""
    query = {} if tenant is None else {"tenant_id": tenant.tenant_id}
    return caller.call("POST", f"/reservations/{reservation}/{verb}", {"holder_id": holder}, **query, **more)


def make_overdue(api: PublicApi, reservation: str) -> None:
    """Its deadline has passed a moment ago."""
    api.database.execute(
        """update reservations set expires_at = clock_timestamp() - interval '1 ms',
           hold_until = clock_timestamp() - interval '1 ms' where id = %s""",
        (reservation,),
    )


def events_of(api: PublicApi, reservation: str) -> list[Any]:
    """Type and payload of each event of the reservation, oldest first."""
    rows = api.database.execute(
        "select event_type, payload, tenant_id::text from outbox where subject = %s order by id",
        (f"reservations/{reservation}",),
    )
    return rows.fetchall()


def operator_id(api: PublicApi) -> str:
    """The id of the one operator's key."""
    row = api.database.execute("select id from api_keys where name = 'first'").fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize(("verb", "state"), [("confirm", "confirmed"), ("cancel", "cancelled")])
def test_an_operator_does_it_on_the_record(api: PublicApi, tenant: Caller, verb: str, state: str) -> None:
    reservation, seat = held(api, tenant)
    key = uuid.uuid4().hex
    first = act(api.admin, verb, reservation, tenant, key=key)
    assert (first.status_code, first.json()["status"], first.json()["result"]) == (200, state, "ok"), first.text
    again = act(api.admin, verb, reservation, tenant, key=key)
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert act(api.admin, verb, reservation, tenant).json()["result"] == "noop"
    shown = tenant.get(f"/reservations/{reservation}")
    assert (shown["status"], shown["expires_at"]) == (state, None)
    assert tenant.get(f"/resources/{seat}")["state"] == ("confirmed" if verb == "confirm" else "available")
    (_, (event, payload, whose)) = events_of(api, reservation)
    assert (event, whose) == (f"reservation.{state}", tenant.tenant_id)
    assert (payload["actor_kind"], payload["actor_id"]) == ("admin", operator_id(api))
    entries = api.admin.every("/admin/audit", 10, subject=f"reservations/{reservation}", principal=operator_id(api))
    assert [(entry["action"], entry["code"]) for entry in entries] == [
        (f"reservation.{verb}", "ok"), (f"reservation.{verb}", "noop"),
    ]  # fmt: skip
    assert {entry["principal"]["id"] for entry in entries} == {operator_id(api)}


def test_what_its_holder_does_names_no_operator(api: PublicApi, tenant: Caller) -> None:
    reservation, _ = held(api, tenant)
    assert act(tenant, "confirm", reservation, None).status_code == 200
    assert act(tenant, "cancel", reservation, tenant).json()["status"] == "cancelled", "its own name does no harm"
    assert [(event, "actor_id" in payload) for event, payload, _ in events_of(api, reservation)] == [
        ("reservation.held", False), ("reservation.confirmed", False), ("reservation.cancelled", False),
    ]  # fmt: skip
    audited = api.admin.every("/admin/audit", 10, subject=f"reservations/{reservation}")
    assert {entry["tenant_id"] for entry in audited} == {tenant.tenant_id}


def test_an_operator_cannot_confirm_what_is_over(api: PublicApi, tenant: Caller) -> None:
    reservation, seat = held(api, tenant)
    make_overdue(api, reservation)
    refused = problem(act(api.admin, "confirm", reservation, tenant), 409, "invalid_state")
    assert refused["state"] == "expired"
    assert tenant.get(f"/reservations/{reservation}")["status"] == "expired", "in the transaction of the refusal"
    assert tenant.get(f"/resources/{seat}")["state"] == "available"
    problem(act(api.admin, "confirm", reservation, tenant), 409, "invalid_state")
    assert act(api.admin, "cancel", reservation, tenant).json()["result"] == "noop"
    overdue, _ = held(api, tenant)
    make_overdue(api, overdue)
    late = act(api.admin, "cancel", overdue, tenant).json()
    assert (late["status"], late["result"]) == ("expired", "noop")


@pytest.mark.parametrize("verb", ["confirm", "cancel"])
def test_tenant_and_holder_must_be_right(api: PublicApi, tenant: Caller, verb: str) -> None:
    reservation, _ = held(api, tenant)
    other = new_tenant(api.admin)
    problem(act(api.admin, verb, reservation, None), 403, "forbidden")
    problem(act(api.admin, verb, reservation, other), 404, "reservation_not_found")
    problem(act(other, verb, reservation, tenant), 404, "not_found")
    problem(act(api.admin, verb, reservation, tenant, holder=HOLDER + " "), 409, "holder_mismatch")
    problem(act(api.admin, verb, str(uuid.UUID(int=2**62)), tenant), 404, "reservation_not_found")
    assert tenant.get(f"/reservations/{reservation}")["status"] == "hold"
    assert len(events_of(api, reservation)) == 1
    told = api.database.execute(
        "select count(*) from outbox where event_type = 'operation.refused' and tenant_id = %s", (tenant.tenant_id,)
    ).fetchone()
    assert told == (0,), "an operator's refusal is not visible to the tenant"
