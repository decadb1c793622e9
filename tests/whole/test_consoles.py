"""A serial console through every component: the tenant's socket, the signed task, the agent's connection."""

from __future__ import annotations

import base64

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.consoles.talking import attached, begun, ending, output_until
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole


@pytest.mark.full
def test_a_tenant_types_into_the_console_of_its_guest(whole: Whole, tenant: Tenant) -> None:
    active = tenant.wait(tenant.create(), "active")
    api = whole.stack.endpoints.api_url
    with attached(api, tenant.api_key, active.allocation_id) as socket:
        session_id = begun(socket)["session_id"]
        output_until(socket, f"sandbox console of {active.allocation_id}".encode())
        socket.send(b"first line\n")
        output_until(socket, b"first line\r\nfirst line\r\n")
    with psycopg.connect(whole.stack.endpoints.database_url, row_factory=dict_row, autocommit=True) as connection:

        def ended() -> bool:
            found = connection.execute("select * from console_sessions where id = %s", (session_id,)).fetchone()
            return found is not None and found["reason"] == "tenant_ended" and found["bytes_to_guest"] == 11

        wait_for(ended, "the end of the session")
    with attached(api, tenant.api_key, active.allocation_id) as socket:
        begun(socket)
        tenant.client.release_allocation(active.allocation_id)
        assert ending(socket)[1] in ("released", "guest_ended")


# Long. tests/consoles reads logs without a whole stack.
@pytest.mark.full
def test_the_log_of_a_console_is_read_from_its_node(whole: Whole, tenant: Tenant) -> None:
    active = tenant.wait(tenant.create(), "active")
    answer = tenant.client._http.get(f"/api/v1/allocations/{active.allocation_id}/console")
    assert answer.status_code == 200, answer.text
    assert base64.b64decode(answer.json()["data"]) is not None
