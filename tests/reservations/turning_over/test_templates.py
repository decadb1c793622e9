"""Holds that arrive together: one that carries its allocation is looked at as closely as one that comes alone."""

from __future__ import annotations

import os
import uuid
from typing import Any

from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Problem
from orchestrator.reservations.commands.hold import hold_resources
from orchestrator.reservations.commands.start import Started, start_reservation
from orchestrator.reservations.hold_requests import HoldRequest
from orchestrator.reservations.store.holding import Hold
from tests.allocations.driving import rows_of
from tests.reservations.holding import HOLDER, ReservationClient, as_client, seed_with_seats
from tests.reservations.turning_over.consuming import code_of, gpus, starting


def test_a_template_is_checked_among_others(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    def asked(client: ReservationClient, ssh_key_id: uuid.UUID | None) -> HoldRequest:
        template: dict[str, Any] | None = None
        if ssh_key_id is not None:
            template = {"image": None, "ssh_key_ids": [str(ssh_key_id)], "name": None, "labels": {}, "user_data": None}
        operation = client.operation(seeded.tenant_id, os.urandom(4).hex())
        hold = Hold(operation, seeded.tenant_id, HOLDER, None, None, 900, template, None, uuid.uuid4())
        return HoldRequest(hold, gpus(starts=template is not None))

    async def way(client: ReservationClient) -> None:
        together = [asked(client, key) for key in (None, uuid.uuid4(), seeded.ssh_key_id, None)]
        found = await hold_resources(client.context, client.catalogue, together)
        answers = [one if isinstance(one, Answer | Problem) else await one.retry_alone() for one in found]
        assert all(isinstance(answer, Answer) for answer in answers)
        plain, wrong, right, other = (answer for answer in answers if isinstance(answer, Answer))
        assert [plain.status, right.status, other.status] == [201, 201, 201]
        assert code_of(wrong) == "ssh_key_not_found"

    as_client(database_url, seeded, way)
    assert rows_of(database_url, "select count(*) from reservations") == [(3,)]


def test_a_template_stored_before_a_member_existed_starts(database_url: str) -> None:
    """Templates are stored as they were sent: an earlier version's lacks what this one has added."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = await starting(client, template={"ssh_key_ids": [str(seeded.ssh_key_id)]})
        assert await start_reservation(client.context, client.catalogue, made) is Started.LAST

    as_client(database_url, seeded, way)
    found = rows_of(database_url, "select name, labels, user_data, restart_policy from allocations")
    assert found == [(None, {}, None, "always")]


def test_a_template_decides_the_restart_policy(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = await starting(client, template={"ssh_key_ids": [str(seeded.ssh_key_id)], "restart_policy": "never"})
        assert await start_reservation(client.context, client.catalogue, made) is Started.LAST

    as_client(database_url, seeded, way)
    assert rows_of(database_url, "select restart_policy from allocations") == [("never",)]
