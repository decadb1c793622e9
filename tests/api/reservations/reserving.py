"""How the tests of the API hold, confirm, cancel and bring reservations to a state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.api.calling import Caller, fresh
from tests.support.public_api import PublicApi

UNKNOWN_ID = "01900000-0000-7000-8000-000000000000"
HOLDER = "order-17/agent-3"
DAY = timedelta(days=1)


def moment(after: timedelta) -> str:
    """So long from now, as RFC 3339."""
    return (datetime.now(UTC) + after).isoformat()


def seat(api: PublicApi) -> str:
    """A registered resource of the test's own."""
    made = api.admin.make("/admin/resources", {"id": fresh("seat")})
    assert (made["state"], made["kind"]) == ("available", "registered")
    return str(made["id"])


def hold(tenant: Caller, *resources: str, **members: Any) -> Any:
    """A hold that succeeds."""
    return tenant.make("/reservations", {"resources": list(resources), "holder_id": HOLDER, **members})


def try_hold(tenant: Caller, *resources: str, key: str | None = None, **members: Any) -> Any:
    """A hold, whatever comes of it."""
    body = {"resources": list(resources), "holder_id": HOLDER, **members}
    return tenant.call("POST", "/reservations", body, key=key)


def act(tenant: Caller, verb: str, reservation_id: str, holder: str = HOLDER, key: str | None = None) -> Any:
    """Confirm or cancel, whatever comes of it."""
    return tenant.call("POST", f"/reservations/{reservation_id}/{verb}", {"holder_id": holder}, key=key)


def make_overdue(api: PublicApi, reservation_id: str) -> None:
    """Its deadline has passed a moment ago."""
    api.database.execute(
        """update reservations set expires_at = clock_timestamp() - interval '1 ms',
           hold_until = clock_timestamp() - interval '1 ms' where id = %s""",
        (reservation_id,),
    )


def bring_to(api: PublicApi, tenant: Caller, resource: str, state: str) -> str:
    """A reservation in that state."""
    made = str(hold(tenant, resource)["reservation_id"])
    if state == "confirmed":
        assert act(tenant, "confirm", made).status_code == 200
    elif state == "cancelled":
        assert act(tenant, "cancel", made).status_code == 200
    elif state in ("overdue", "expired"):
        make_overdue(api, made)
        if state == "expired":
            assert act(tenant, "cancel", made).json()["status"] == "expired"
    elif state in ("consumed", "released"):
        # As the commands that turn over and that end windows do: through the one door.
        if state == "released":
            assert act(tenant, "confirm", made).status_code == 200
        api.database.execute(
            """select advance_reservation(id, state, row_version, %s, 'reservation.' || %s, '{}', clock_timestamp(), 60,
                                          null, null), close_reservation_claims(id) from reservations where id = %s""",
            (state, state, made),
        )
    return made
