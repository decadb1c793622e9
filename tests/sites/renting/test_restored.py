"""After a restore nothing is done by itself to a machine without an agent: another tenant's content may be on it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from berth.cli.deployment.restore.machines import keep_machine, machine_finding
from berth.cli.endings import Refused
from migrations.roles import Role
from orchestrator.allocations.commands.force import force_release
from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.nodes.deploy_systems.run_rules import Move, RunKind
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.berth.commands import berth
from tests.databases import as_role
from tests.nodes.answers import body_of
from tests.sites.renting.tenancy import LOCAL, Renting, Scene

BEGUN = "insert into restores (written_by, leader_id, head_version, without_export) values ('w', 'l', 0, 'none') returning epoch"
CLOSED = "update restores set closed_at = clock_timestamp() where epoch = %s"
LEFT = """
select (select count(*) from deploy_runs where ended_at is null), (select count(*) from bmc_tasks where ended_at is null),
       (select count(*) from deploy_systems where ended_at is null), (select count(*) from deploy_tasks where ended_at is null),
       (select count(*) from node_tasks where deploy_epoch > 0 and state in ('queued', 'dispatched'))
"""


def restore(rent: Renting) -> int:
    """The database was restored to this moment; how many runs that has ended."""
    rent.run.stage.fleet.connection.execute("update nodes set driver = 'redfish' where id = %s", (rent.run.node,))
    (epoch,) = rent.run.row(BEGUN)
    (ended,) = rent.run.row("select restore_end_runs(%s)", epoch)
    assert rent.run.row("select restore_end_runs(%s)", epoch) == (0,)
    assert rent.run.row("select restore_close_nodes(%s)", epoch) >= (1,)
    rent.run.stage.fleet.connection.execute(CLOSED, (epoch,))
    assert rent.run.row(LEFT) == (0, 0, 0, 0, 0)
    return int(ended)


async def idle(rent: Renting) -> bool:
    """Whether the worker leaves the machine as it is, which another tenant uses."""
    machine = rent.run.machine.service.machine
    machine.power = "On"
    moved = await rent.run.advance()
    return moved is None and machine.power == "On" and rent.run.row(LEFT)[:2] == (0, 0)


async def wiped(rent: Renting) -> None:
    """An operator says that the content of the machine may be destroyed: it is, and the release ends."""
    shown = body_of(await rent.run.request(network=LOCAL, kind=RunKind.WIPE))
    assert (shown["kind"], shown["allocation_id"]) == ("wipe", str(rent.allocation))
    assert shown["requested_by"].startswith("admin:")
    assert await rent.steps() is Move.WORK
    await rent.wipe()
    assert await rent.steps() is Move.CLOSE
    assert (await rent.cleaned_up()).state is AllocationState.RELEASED
    assert rent.claim["closed_at"] is not None
    assert rent.run.row("select count(*) from awaited_inventories where node_id = %s", rent.run.node) == (0,)
    assert rent.run.row("select count(*) from slots where node_id = %s and state <> 'in_service'", rent.run.node) == (
        0,
    )


def test_a_release_wipes_no_machine_before_an_operator_allows_it(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        refused = restore(rent), body_of(await rent.run.request(network=LOCAL, kind=RunKind.WIPE))["code"]
        assert refused == (0, "node_in_use"), "an active allocation is released first"
        await rent.release()
        await rent.clean_up()
        assert await idle(rent)
        await wiped(rent)

    play(scene)


def test_a_run_of_before_goes_on_by_no_step(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.release()
        await rent.clean_up()
        assert await rent.steps() is Move.WORK
        rent.run.boot()
        await rent.run.sign()
        assert restore(rent) == 1
        assert await idle(rent)
        ended = rent.run.row(
            "select payload ->> 'failure' from outbox where event_type = 'node.deploy_run_ended' order by id desc limit 1"
        )
        assert ended[0].startswith("restored: ")
        assert ended[0].endswith(f"of allocation {rent.allocation}")
        await wiped(rent)

    play(scene)


def test_what_waits_for_its_deployment_is_not_deployed_again(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        restore(rent)
        assert await idle(rent)
        refused = body_of(await rent.run.request(network=LOCAL, kind=RunKind.WIPE))
        assert (refused["code"], refused["state"]) == ("invalid_state", "awaited")
        await force_release(rent.run.stage.context, admin_operation(), ADMIN, rent.allocation, "restored")
        await rent.clean_up()
        assert await idle(rent)
        await wiped(rent)

    play(scene)


def test_after_a_restore_a_verb_waits_for_an_operator_and_is_no_reason_to_wipe(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.order(Verb.REBOOT)
        restore(rent)
        assert await rent.run.advance() is None
        refused = body_of(await rent.run.request(network=LOCAL, kind=RunKind.WIPE))
        assert refused["code"] == "node_in_use"
        assert rent.row["state"] == "active"

    play(scene)


def exported(rent: Renting, directory: Path, *events: dict[str, Any], missing: int = 0) -> None:
    """The lost interval has these events."""
    content = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    (directory / "events.ndjson").write_bytes(content)
    (directory / "manifest.json").write_text(json.dumps({"missing": missing}))
    rent.run.stage.fleet.connection.execute(
        "update restores set without_export = null, exported_at = clock_timestamp(), export_events = %s, export_sha256 = %s",
        (len(events), hashlib.sha256(content).digest()),
    )


def keep(rent: Renting, directory: Path) -> str:
    """An operator says that the machine is still its allocation's: the id of that, or why not."""
    with psycopg.connect(as_role(rent.url, Role.OPERATOR), autocommit=True) as connection:
        try:
            return str(keep_machine(connection, str(rent.run.node), directory))
        except Refused as refused:
            return str(refused)


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": f"berth.{kind}", "subject": "s", "data": data}


def test_an_operator_keeps_an_allocation_that_nothing_has_followed(
    play: Callable[[Scene], None], tmp_path: Path
) -> None:
    async def scene(rent: Renting) -> None:
        execute, node = rent.run.stage.fleet.connection.execute, str(rent.run.node)
        await rent.activate()
        assert "not awaited" in keep(rent, tmp_path)
        restore(rent)
        assert "was not exported" in keep(rent, tmp_path)
        exported(rent, tmp_path, event("provisioning.requested", node_id=node, allocation_id=str(uuid.uuid4())))
        assert "is about its machine" in keep(rent, tmp_path)
        exported(rent, tmp_path, event("node.deploy_run_ended", node_id=node))
        assert "is about its machine" in keep(rent, tmp_path)
        exported(rent, tmp_path, missing=1)
        assert "1 versions" in keep(rent, tmp_path)
        others = event("provisioning.requested", node_id=str(uuid.uuid4()), allocation_id=str(uuid.uuid4()))
        exported(rent, tmp_path, others, event("node.deploy_run_ended", node_id=str(uuid.uuid4())))
        assert "has not answered" in keep(rent, tmp_path)
        execute("update node_bmcs set answered_at = clock_timestamp() where node_id = %s", (node,))
        execute(
            "insert into restore_replays (epoch, kind, subject_id, version, ended_at)"
            " select epoch, 'release', %s, 1, clock_timestamp() from restores", (rent.allocation,)
        )  # fmt: skip
        assert "was released in the lost interval" in keep(rent, tmp_path)
        execute("delete from restore_replays")
        (tmp_path / "events.ndjson").write_text("")
        assert "is not the export" in keep(rent, tmp_path)
        exported(rent, tmp_path, others)
        finding = machine_finding(as_role(rent.url, Role.OPERATOR))
        assert (finding.verdict, "is unknown since a restore" in finding.detail) == ("warning", True)
        listed = berth("restore", "nodes", BERTH_DATABASE_URL=rent.url)
        assert f"wipe or keep it (active {rent.allocation})" in listed.stdout, listed.stderr
        kept = berth("restore", "nodes", "--keep", node, "--export", str(tmp_path), BERTH_DATABASE_URL=rent.url)
        assert f"keeps allocation {rent.allocation}" in kept.stdout, kept.stderr
        assert machine_finding(as_role(rent.url, Role.OPERATOR)).verdict == "ok"
        assert rent.run.row("select count(*) from slots where node_id = %s and state <> 'in_service'", node) == (0,)
        await rent.release()
        await rent.clean_up()
        assert await rent.run.advance() is Move.OPEN, "its release wipes the machine again as ever"

    play(scene)
