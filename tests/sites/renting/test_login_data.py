"""Whatever a tenant may store, the run of its allocation is opened, or its task has failed: no task waits for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest

from node_agent.wire import deploy_tasks
from orchestrator.http import fields
from orchestrator.nodes.deploy_systems.deploy_orders import NotDeployable, rescue_of, size_of
from orchestrator.nodes.deploy_systems.run_rules import Move
from orchestrator.tasks.store import site_tasks
from orchestrator.tenants.ssh_key_format import LINE_LENGTH_MAX
from tests.sites.renting.tenancy import Renting, Scene

KEY = "ssh-ed25519 " + "A" * 68 + " someone@example.com"


def test_a_deploy_system_takes_what_the_api_takes() -> None:
    assert deploy_tasks.USER_DATA_MAX >= fields.USER_DATA_LENGTH_MAX
    assert deploy_tasks.SSH_KEYS_MAX >= fields.SSH_KEYS_MAX
    assert deploy_tasks.SSH_KEY_LENGTH_MAX >= LINE_LENGTH_MAX


@pytest.mark.parametrize(
    ("user_data", "keys", "move"),
    [
        ("#!/bin/sh\n" + "x\n" * 32_000, [KEY] * fields.SSH_KEYS_MAX, Move.OPEN),
        ("\x01" * fields.USER_DATA_LENGTH_MAX, [KEY], Move.REFUSE),
        ("\U0001f600" * fields.USER_DATA_LENGTH_MAX, [KEY], Move.REFUSE),
    ],
)
def test_login_data_is_deployed_or_refused(
    play: Callable[[Scene], None], user_data: str, keys: list[str], move: Move
) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        rent.run.stage.fleet.connection.execute(
            "update allocations set user_data = %s, ssh_public_keys = %s where id = %s",
            (user_data, keys, rent.allocation),
        )
        await rent.provision()
        assert await rent.run.advance() is move
        if move is Move.OPEN:
            await rent.steps()
            sizes = "select octet_length(parameters::text) from deploy_tasks where type = 'metal.deploy'"
            assert rent.run.row(sizes)[0] > 2 * 32_000
        else:
            assert (rent.task["state"], rent.task["failure_code"]) == ("failed", "task_refused")
            assert rent.task["failure_detail"].startswith("login_too_large: ")

    play(scene)


@pytest.mark.parametrize(
    ("keys", "detail"),
    [
        ([], "no_keys: "),
        ([f"ssh-rsa {'A' * 16_000}"] * 9, "login_too_large: "),
        ([f"{KEY}\n{KEY}"], "the rescue cannot"),
    ],
)
def test_a_rescue_that_no_deploy_system_can_have_is_refused(keys: list[str], detail: str) -> None:
    with pytest.raises(NotDeployable) as refused:
        rescue_of(keys)
    assert refused.value.code == "task_refused"
    assert refused.value.detail.startswith(detail)
    assert rescue_of([KEY]).parameters == {"ssh_public_keys": [KEY]}


def test_parameters_are_measured_as_postgresql_does(database_url: str) -> None:
    text = "".join(map(chr, range(1, 0xD800))) + "\U0001f600"
    parameters = {"config_drive": {"user_data": text, "network": None, "keys": [1, 2.5, True]}, "disks": []}
    with psycopg.connect(database_url) as connection:
        counted = "select octet_length(cast(%s as jsonb)::text)"
        row = connection.execute(counted, (json.dumps(parameters),)).fetchone()
    assert row == (size_of(parameters),)


def test_an_inspection_that_cannot_be_read_is_a_failed_task(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        rent.run.stage.fleet.connection.execute("update node_machines set report = '{}'")
        assert await rent.run.advance() is Move.REFUSE
        assert rent.task["failure_detail"].startswith("not_usable: ")

    play(scene)


def test_the_longest_waiting_task_is_first(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        connection, copied = rent.run.stage.fleet.connection, []
        for seconds in (30, 90, 60):
            node = uuid4()
            connection.execute(
                "insert into node_tasks (id, node_id, node_epoch, deploy_epoch, type, fence, envelope, not_before, expires_at,"
                " queued_at) select gen_random_uuid(), %s, node_epoch, 0, 'metal.inspect', nextval('fences'), envelope,"
                " not_before, expires_at, queued_at - make_interval(secs => %s) from node_tasks where allocation_id = %s",
                (node, seconds, rent.allocation),
            )
            copied.append(node)
        async with rent.run.stage.context.database.reading() as reading:
            found = await site_tasks.find_waiting(reading, 3)
        assert found == [copied[1], copied[2], copied[0]]

    play(scene)
