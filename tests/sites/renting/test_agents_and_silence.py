"""What is on a rented machine ends through its BMC alone: a silent BMC changes nothing, and no agent takes the machine over."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from orchestrator.allocations.commands.health import degrade_unnoticed
from orchestrator.allocations.queries import find_unnoticed_nodes
from orchestrator.nodes.commands.enrolment import EnrolmentRequest, create_enrolment_token, enrol_node
from orchestrator.operations.sealing import Sealer
from orchestrator.problems import CertificatePending, InvalidState, NodeInUse
from orchestrator.sites import tenancies
from orchestrator.sites.commands.liveness import turn_node
from orchestrator.tenants.principals import Principal
from tests.allocations.reconciling import admin_operation
from tests.api.calling import signing_request
from tests.nodes.answers import refusal_of
from tests.sites.renting.tenancy import Renting, renting, ssh_server

Scene = Callable[[Renting], Coroutine[Any, Any, None]]
TOKEN = "enrol2.-.a-token"
OPERATOR = Principal("fleet", uuid.uuid4(), None)


def play(url: str, directory: Path, monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    async def whole() -> None:
        async with (
            ssh_server(lambda port: monkeypatch.setattr(tenancies, "SSH_PORT", port)) as host_key,
            renting(url, directory) as rent,
        ):
            rent.host_key = host_key
            rent.run.stage.fleet.connection.execute(
                "update nodes set driver = 'redfish' where id = %s", (rent.run.node,)
            )
            await scene(rent)

    asyncio.run(whole())


async def enrol(rent: Renting) -> None:
    """An agent enrols with a token that was made in time."""
    rent.run.stage.fleet.connection.execute(
        "insert into enrolment_tokens (node_id, token_hash, created_by, expires_at)"
        " values (%s, sha256(%s::bytea), gen_random_uuid(), clock_timestamp() + interval '1 hour') on conflict do nothing",
        (rent.run.node, TOKEN.encode()),
    )
    wanted = EnrolmentRequest(TOKEN, "hardware", signing_request(), None, "r")
    await enrol_node(rent.run.stage.api, wanted, wait_seconds_max=0.0)


def test_a_silent_bmc_says_nothing_about_the_allocation(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        worker, connection = rent.run.stage.worker, rent.run.stage.fleet.connection
        connection.execute("update node_bmcs set answered_at = clock_timestamp() - interval '1 hour'")
        assert await turn_node(worker, rent.run.node, 60.0) is False
        assert await find_unnoticed_nodes(worker, 10) == []
        assert await degrade_unnoticed(worker, rent.run.node) == 0
        assert (rent.row["state"], rent.row["health"]) == ("active", None)
        connection.execute("update nodes set driver = 'sandbox' where id = %s", (rent.run.node,))
        assert await find_unnoticed_nodes(worker, 10) == [rent.run.node], "the silence of an agent counts"

    play(database_url, tmp_path, monkeypatch, scene)


def test_a_node_whose_agent_enrols_is_offline_until_its_first_heartbeat(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(rent: Renting) -> None:
        with pytest.raises(CertificatePending):  # no issuer runs
            await enrol(rent)
        shown = rent.run.row("select online, driver, enrolled_at is not null from nodes where id = %s", rent.run.node)
        assert shown == (False, None, True)

    play(database_url, tmp_path, monkeypatch, scene)


def test_no_agent_enrols_while_a_site_works_on_the_machine_or_a_tenant_has_it(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(rent: Renting) -> None:
        async def token() -> tuple[int, str, str | None]:
            made = await create_enrolment_token(
                rent.run.stage.api, admin_operation(), OPERATOR, Sealer("k"), rent.run.node, hardware_id=None,
                valid_seconds=600, pin=None,
            )  # fmt: skip
            return refusal_of(made)

        rent.create()
        await rent.provision()
        await rent.steps()
        assert await token() == (409, "invalid_state", "run_open")
        with pytest.raises(InvalidState):
            await enrol(rent)
        await rent.deploy()
        await rent.steps()
        await rent.provisioned()
        assert (await token())[1] == "node_in_use"
        with pytest.raises(NodeInUse):
            await enrol(rent)
        assert rent.run.row("select enrolled_at from nodes where id = %s", rent.run.node) == (None,)

        # Even if one had: what a site has deployed, a site wipes.
        rent.run.stage.fleet.connection.execute(
            "update nodes set enrolled_at = clock_timestamp() where id = %s", (rent.run.node,)
        )
        await rent.release()
        await rent.clean_up()
        assert rent.task["deploy_epoch"] == 0

    play(database_url, tmp_path, monkeypatch, scene)
