"""Sockets in the audit: what an operator hears, what is refused, and the subscriptions that are created."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from tests.api.calling import Caller, fresh, new_tenant
from tests.log.listening import Listener
from tests.log.notified import as_browser, heard, opened_once
from tests.support.waiting import wait_for

ROWS = """
select action, subject, status, code, tenant_id::text from audit
where action in ('notification.read', 'subscription.create') order by id
"""


def _recorded(listener: Listener, number: int) -> list[tuple[object, ...]]:
    """The rows of sockets, as soon as there are so many."""
    wait_for(lambda: len(listener.database.execute(ROWS).fetchall()) >= number, "the rows of sockets")
    return listener.database.execute(ROWS).fetchall()


def test_what_operators_hear_what_is_refused_and_what_is_created_is_recorded(listener: Listener) -> None:
    admin = listener.admin
    tenant = new_tenant(admin)
    viewer = Caller(
        admin.http, tenant.make("/api-keys", {"name": fresh("key"), "role": "viewer"})["key"], tenant.tenant_id
    )
    opened_once(tenant)
    for _ in range(2):
        opened_once(tenant, subscription="mine")
    opened_once(admin)
    with pytest.raises(InvalidStatus):
        opened_once(viewer, subscription="other")
    with as_browser(viewer, subscription="other") as socket:
        assert heard(socket)["code"] == "role_required"
    opened_once(admin)
    rows = _recorded(listener, 5)
    of_tenant = tenant.tenant_id
    assert sorted(rows, key=str) == sorted(
        [
            ("subscription.create", "subscriptions/mine", None, "ok", of_tenant),
            ("notification.read", "notifications", 101, "ok", None),
            ("notification.read", "notifications", 403, "role_required", of_tenant),
            ("notification.read", "notifications", 403, "role_required", of_tenant),
            ("notification.read", "notifications", 101, "ok", None),
        ],
        key=str,
    ), "a tenant's own reading leaves no row"
