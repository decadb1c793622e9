"""User data and SSH keys leave the allocation and its tasks in the transaction that proves the cleanup (P6, retention)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from orchestrator.allocations.commands.force import force_cleanup, force_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.release import release_allocation
from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.operations.execution import Context
from orchestrator.reservations.commands.start import Started, start_reservation
from orchestrator.verification.p6_removed_login_data import check_removed_login_data
from orchestrator.verification.verdict import Bounds
from tests.allocations.driving import (
    ADMIN,
    TENANT,
    allocation_of,
    clean_up,
    failed,
    operation,
    provision,
    release,
    report,
    row_of,
    run_with,
    task_of,
)
from tests.allocations.seeding import Seeded, connect, create_allocation, seed
from tests.allocations.stored_text import places_of
from tests.at_length import at_length
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from tests.reservations.turning_over.consuming import starting

MARKER = "marker-c5b1f7"

Way = Callable[[Context, str, Seeded, UUID], Awaitable[None]]


async def proven(context: Context, url: str, seeded: Seeded, allocation_id: UUID) -> None:
    await provision(context, url, allocation_id)
    await release(context, seeded, allocation_id)
    await clean_up(context, url, allocation_id)


async def failed_and_cleaned(context: Context, url: str, _: Seeded, allocation_id: UUID) -> None:
    await begin_provisioning(context, allocation_id, "w")
    task = task_of(url, allocation_id)
    await report(context, task, failed(task))
    await finish_provisioning(context, allocation_id)
    await clean_up(context, url, allocation_id)


async def stated(context: Context, url: str, seeded: Seeded, allocation_id: UUID) -> None:
    await provision(context, url, allocation_id)
    await force_release(context, operation(seeded), ADMIN, allocation_id, "gone")
    await force_cleanup(context, operation(seeded), ADMIN, allocation_id, "inspected")


async def never_started(context: Context, url: str, seeded: Seeded, allocation_id: UUID) -> None:
    with connect(url) as connection:
        connection.execute("update allocations set waits_for = 'units' where id = %s", (allocation_id,))
    await release_allocation(context, operation(seeded), TENANT, seeded.tenant_id, allocation_id)


async def waited_too_long(context: Context, url: str, _: Seeded, allocation_id: UUID) -> None:
    with connect(url) as connection:
        late = "update allocations set waits_for = 'units', waits_until = clock_timestamp() where id = %s"
        connection.execute(late, (allocation_id,))
    await fail_unstarted(context, allocation_id)


WAYS: dict[str, tuple[Way, str]] = {
    "proven": (proven, "released"),
    "failed and cleaned up": (failed_and_cleaned, "failed"),
    "stated by an operator": (stated, "released"),
    "never started": (never_started, "released"),
    "waited too long": (waited_too_long, "failed"),
}


def mark(url: str, allocation_id: UUID) -> None:
    """Give the allocation user data and an SSH key that contain the marker."""
    with connect(url) as connection:
        connection.execute(
            "update allocations set user_data = %s, ssh_public_keys = %s where id = %s",
            (f"#!{MARKER}", [f"ssh-ed25519 AAAA {MARKER}"], allocation_id),
        )


@pytest.mark.parametrize("name", at_length(WAYS, ["proven", "never started", "waited too long"]))
def test_nothing_of_it_is_left_once_the_cleanup_is_proven(database_url: str, name: str) -> None:
    way, state = WAYS[name]
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded, start_seconds=300)
    mark(database_url, allocation_id)
    assert places_of(database_url, MARKER) == ["allocations.ssh_public_keys", "allocations.user_data"]
    run_with(database_url, lambda context: way(context, database_url, seeded, allocation_id))
    assert allocation_of(database_url, allocation_id)["state"] == state
    assert places_of(database_url, MARKER) == []
    with connect(database_url) as connection:
        assert check_removed_login_data(connection, Bounds()).violations == []


def test_it_stays_while_something_may_run(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)
    mark(database_url, allocation_id)

    async def way(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        await release(context, seeded, allocation_id)

    run_with(database_url, way)
    left = places_of(database_url, MARKER)
    assert left == ["allocations.ssh_public_keys", "allocations.user_data", "node_tasks payload"]


def test_a_task_keeps_its_other_members_and_the_digest_of_what_was_signed(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)
    signed: dict[str, Any] = {}

    async def way(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        signed.update(task_of(database_url, allocation_id))
        await release(context, seeded, allocation_id)
        await clean_up(context, database_url, allocation_id)

    run_with(database_url, way)
    kept = row_of(database_url, "select * from node_tasks where id = %s", signed["id"])["envelope"]
    before = base64.b64decode(signed["envelope"]["payload"])
    body = json.loads(before)
    assert body["parameters"].pop("ssh_public_keys")
    del body["parameters"]["user_data"]
    assert json.loads(base64.b64decode(kept["payload"])) == body
    assert kept["payload_sha256"] == hashlib.sha256(before).hexdigest()
    assert kept["signatures"] == signed["envelope"]["signatures"]


@pytest.mark.parametrize("end", at_length(["cancelled", "consumed"], ["consumed"]))
def test_a_reservation_keeps_user_data_until_it_ends(database_url: str, end: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        template = {"ssh_key_ids": [str(seeded.ssh_key_id)], "user_data": MARKER}
        made = await starting(client, template=template)
        assert places_of(database_url, MARKER) == ["reservations.template"]
        if end == "consumed":
            assert await start_reservation(client.context, client.catalogue, made) is Started.LAST
        else:
            assert (await client.cancel(made)).status == 200

    as_client(database_url, seeded, way)
    assert places_of(database_url, MARKER) == (["allocations.user_data"] if end == "consumed" else [])
