"""What an update of firmware is refused for, and what waits for it: nothing is sent then, and the machine returns."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from node_agent.wire.firmware import FirmwareProgress, FirmwareReading, StoreProgress
from node_agent.wire.sites import BmcTaskKind, BmcTaskReport
from orchestrator.maintenance.states import TaskKind, WindowTaskState
from orchestrator.maintenance.window_tasks import WantedTask
from orchestrator.nodes.deploy_systems.run_rules import RunKind
from orchestrator.problems import Invalid
from orchestrator.sites.commands.bmcs import put_bmc, remove_bmc, request_bmc_task
from orchestrator.sites.commands.reports import accept_bmc_report, keep_progress
from orchestrator.sites.commands.runs import request_run
from orchestrator.sites.commands.tasks import advance_bmc_task
from orchestrator.sites.ports.commands import put_ports, request_move
from orchestrator.sites.ports.rules import Verb
from orchestrator.sites.queries import find_open_updates
from orchestrator.sites.run_orders import RunOrder
from orchestrator.sites.store.bmcs import Address
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.nodes.answers import body_of, refusal_of
from tests.nodes.maintenance_tasks.running import begun_window, commit, end, time_is_over
from tests.sites.running import ADDRESSES, NETWORK
from tests.sites.updates.running import IMAGE, Update, another, play

LOOKED = """
update node_bmcs set inventory = cast(%s as jsonb), looked_at = clock_timestamp(), power_state = 'On' where node_id = %s
"""
MACHINE = """
insert into node_machines (node_id, smbios_uuid, macs, report, inspected_at)
values (%s, gen_random_uuid(), '{}', '{"topology": {"firmware": {"vendor": "V", "product": "P"}}}', clock_timestamp())
"""
LISTED = (
    "insert into firmware_lists (vendor, product, components, changed_by) values ('V', 'P', cast(%s as jsonb), 'test')"
)


def answered(status: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.mark.quick("shorter", "redirect", "no-target")
@pytest.mark.parametrize(
    ("answer", "order", "code"),
    [
        (answered("200 OK", IMAGE + b"x"), {}, "image_mismatch"),
        (answered("200 OK", IMAGE[:-1]), {}, "image_mismatch"),
        (answered("404 Not Found"), {}, "image_unavailable"),
        (answered("302 Found"), {}, "image_unavailable"),
        (b"nonsense\r\n\r\n", {}, "image_unavailable"),
        (answered("200 OK", IMAGE), {"targets": ["BMC", "BIOS"]}, "firmware_target_unknown"),
        (answered("200 OK", IMAGE), {"seconds": 900, "wait": True}, "too_little_time"),
    ],
    ids=["longer", "shorter", "missing", "redirect", "no-http", "no-target", "late"],
)
def test_what_is_not_the_image_or_not_the_target_is_not_sent(
    database_url: str, tmp_path: Path, answer: bytes, order: dict[str, Any], code: str
) -> None:
    async def scene(update: Update) -> None:
        update.images.answer = answer
        await update.begin(**{name: value for name, value in order.items() if name != "wait"})
        if "wait" in order:
            late = "update maintenance_tasks set seconds_max = 700"
            update.stage.fleet.connection.execute(late)
        await update.perform()
        assert await update.advance() is WindowTaskState.NOT_RUN
        assert update.ended()[:2] == ("not_run", code)
        assert (update.sent(), update.quarantined(), update.served()) == (0, 0, 0)
        window = body_of(await end(update.stage.api, update.window))
        assert window["tasks"][0]["state"] == "not_run"

    play(database_url, tmp_path, scene)


def test_an_image_larger_than_the_bound_is_not_fetched_to_its_end(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node_agent.site.images.SiteImages.__init__.__defaults__", (len(IMAGE) - 1,))

    async def scene(update: Update) -> None:
        assert await update.whole() is WindowTaskState.NOT_RUN
        assert update.ended()[1] == "image_too_large"

    play(database_url, tmp_path, scene)


def test_an_agent_that_serves_no_media_sends_nothing(database_url: str, tmp_path: Path) -> None:
    async def scene(update: Update) -> None:
        update.stage.first.media._place = None
        assert await update.whole() is WindowTaskState.NOT_RUN
        assert update.ended()[1] == "no_medium"
        assert update.images.paths == []

    play(database_url, tmp_path, scene)


def test_a_window_is_refused_for_nodes_whose_firmware_it_cannot_update(database_url: str, tmp_path: Path) -> None:
    async def scene(update: Update) -> None:
        api, node, fleet = update.stage.api, update.node, update.stage.fleet.connection

        async def refused(task: WantedTask, **options: Any) -> tuple[str, str]:
            found = body_of(await commit(api, node, task, **options))
            return found["code"], found.get("nodes", [{"reason": found["detail"]}])[0]["reason"]

        plain = WantedTask(TaskKind.FIRMWARE, None, 1_200)
        assert (await refused(plain))[0] == "maintenance_task_invalid"
        wrong = WantedTask(TaskKind.PLUGIN, "p", 1_200, update.order())
        assert (await refused(wrong))[0] == "maintenance_task_invalid"
        assert (await refused(update.task(seconds=899)))[0] == "maintenance_task_invalid"
        assert (await refused(update.task(), slots=(1,)))[0] == "maintenance_task_invalid"
        assert (await refused(update.task(), hours=0.3))[0] == "maintenance_task_invalid"
        inventory = {"cut": False, "firmware": [{"id": "BIOS", "name": "System BIOS", "version": "1"}]}
        fleet.execute(LOOKED, (json.dumps(inventory), node))
        unsupported = "maintenance_task_unsupported"
        assert await refused(update.task()) == (unsupported, "its BMC names no firmware BMC, but BIOS")
        fleet.execute(MACHINE, (node,))
        entries = [{"component": "inventory", "model": "System BIOS", "versions": ["1.9", "2.1"]}]
        fleet.execute(LISTED, (json.dumps(entries),))
        code, why = await refused(update.task(targets=["BIOS"]))
        assert code == unsupported
        assert why == ("the firmware list of its model does not accept 2.00 of System BIOS; put it on the list first")
        fleet.execute("delete from bmc_credentials")
        fleet.execute("delete from node_bmcs")
        assert await refused(update.task()) == (unsupported, "it has no BMC of a site")
        assert fleet.execute("select count(*) from maintenance_windows").fetchone() == (0,)

    play(database_url, tmp_path, scene)


def test_a_listed_version_is_accepted_and_a_cut_or_absent_description_refuses_nothing(
    database_url: str, tmp_path: Path
) -> None:
    async def scene(update: Update) -> None:
        fleet, node = update.stage.fleet.connection, update.node
        entry = {"id": "BMC", "name": "Manager", "version": "1.00"}
        fleet.execute(MACHINE, (node,))
        fleet.execute(LISTED, (json.dumps([{"component": "inventory", "model": None, "versions": ["2.00"]}]),))
        for inventory in ({"cut": True, "firmware": []}, {"cut": False, "firmware": [entry]}):
            fleet.execute(LOOKED, (json.dumps(inventory), node))
            made = await commit(update.stage.api, node, update.task(), starts=2)
            assert made.status == 201, made.body
            assert body_of(made)["task"]["firmware"] == update.order().model_dump()
            fleet.execute("delete from maintenance_tasks")
            fleet.execute("delete from claims")

    play(database_url, tmp_path, scene)


def test_an_update_waits_for_what_works_through_the_bmc_and_is_not_made_when_that_lasts(
    database_url: str, tmp_path: Path
) -> None:
    async def scene(update: Update) -> None:
        stage = update.stage
        await update.machine.request(BmcTaskKind.LOOK)
        update.window = await begun_window(stage.api, update.node, update.task())
        assert await update.advance() is None
        assert await find_open_updates(stage.worker, 10) == []
        await update.perform()
        assert await find_open_updates(stage.worker, 10) == [(update.window, update.node)]
        order = RunOrder(RunKind.INSPECT, NETWORK, uuid.uuid4(), (), False)
        stage.fleet.connection.execute("update nodes set state = 'cordoned'")
        assert (await request_run(stage.api, admin_operation(), ADMIN, update.node, order, ADDRESSES)).status < 300
        stage.fleet.connection.execute("delete from bmc_tasks")
        assert await find_open_updates(stage.worker, 10) == [], "the run is open between two tasks of the BMC"
        assert await update.advance() is None
        time_is_over(database_url, update.window)
        assert await find_open_updates(stage.worker, 10) == [(update.window, update.node)]
        assert await update.advance() is WindowTaskState.NOT_RUN
        assert update.ended()[:2] == ("not_run", "node_busy")

    play(database_url, tmp_path, scene)


def test_nothing_else_uses_the_bmc_while_a_window_updates_the_machine(database_url: str, tmp_path: Path) -> None:
    async def scene(update: Update) -> None:
        stage, node = update.stage, update.node
        await update.begin()
        await update.perform()
        assert update.row("select count(*) from bmc_tasks where ended_at is null") == (0,), "its verdict is open"
        busy = (409, "invalid_state", "maintenance_task")
        assert refusal_of(await end(stage.api, update.window)) == busy
        for kind in (BmcTaskKind.LOOK, BmcTaskKind.POWER_OFF, BmcTaskKind.RESET_BMC):
            assert refusal_of(await request_bmc_task(stage.api, admin_operation(), ADMIN, node, kind)) == busy
        assert refusal_of(await remove_bmc(stage.api, admin_operation(), ADMIN, node)) == busy
        address = Address(stage.site_id, "https://192.0.2.8", b"c" * 32, "berth", None)
        assert refusal_of(await put_bmc(stage.api, admin_operation(), ADMIN, node, address, None)) == busy
        for verb in (Verb.CHECK, Verb.SHUT):
            assert refusal_of(await request_move(stage.api, admin_operation(), ADMIN, node, verb)) == busy
        assert refusal_of(await put_ports(stage.api, admin_operation(), ADMIN, node, [])) == busy
        order = RunOrder(RunKind.INSPECT, NETWORK, uuid.uuid4(), (), False)
        stage.fleet.connection.execute("update nodes set state = 'cordoned'")
        assert refusal_of(await request_run(stage.api, admin_operation(), ADMIN, node, order, ADDRESSES)) == busy
        assert await update.advance() is WindowTaskState.COMPLETED
        looked = await request_bmc_task(stage.api, admin_operation(), ADMIN, node, BmcTaskKind.LOOK)
        assert looked.status == 200

    play(database_url, tmp_path, scene)


def test_an_update_that_no_agent_performs_ends_by_its_deadline(database_url: str, tmp_path: Path) -> None:
    async def scene(update: Update) -> None:
        fleet = update.stage.fleet.connection
        over = "update bmc_tasks set waits_until = clock_timestamp() where id = %s"
        await update.begin()
        fleet.execute(over, (update.machine.task_id,))
        await advance_bmc_task(update.stage.worker, update.machine.task_id)
        assert await update.advance() is WindowTaskState.NOT_RUN
        assert update.ended()[:2] == ("not_run", "no_agent")
        silent = await another(update.stage, update.images)
        await silent.begin()
        await silent.stage.take(silent.stage.first, silent.machine)
        fleet.execute(over, (silent.machine.task_id,))
        await advance_bmc_task(silent.stage.worker, silent.machine.task_id)
        assert await silent.advance() is WindowTaskState.NOT_RUN, "no agent was about to send it"
        assert silent.ended()[:2] == ("not_run", "no_report")
        begun = await another(update.stage, update.images)
        await begun.begin()
        order = await begun.stage.take(begun.stage.first, begun.machine)
        made = FirmwareProgress(sender=uuid.uuid4(), before=FirmwareReading(targets=[]), power_state="On", tasks=[])
        body = StoreProgress(fence=order.body.fence, lease_fence=order.lease_fence, progress=made)
        await keep_progress(begun.stage.context, begun.stage.first.id, begun.machine.task_id, body)
        fleet.execute(over, (begun.machine.task_id,))
        await advance_bmc_task(begun.stage.worker, begun.machine.task_id)
        assert await begun.advance() is WindowTaskState.INTERRUPTED
        assert (begun.ended()[:2], begun.quarantined()) == (("interrupted", "no_report"), 8)

    play(database_url, tmp_path, scene)


def test_the_first_process_that_stores_its_progress_sends_the_update_and_no_other(
    database_url: str, tmp_path: Path
) -> None:
    async def scene(update: Update) -> None:
        stage = update.stage
        await update.begin()
        order = await stage.take(stage.first, update.machine)

        async def keep(fence: int, lease: int, progress: FirmwareProgress | None) -> tuple[bool, Any, Any]:
            body = StoreProgress(fence=fence, lease_fence=lease, progress=progress)
            found = await keep_progress(stage.context, stage.first.id, update.machine.task_id, body)
            return found.stored, found.progress and found.progress.sender, found.progress and found.progress.task

        def made(sender: int, task: str | None = None) -> FirmwareProgress:
            return FirmwareProgress(
                sender=uuid.UUID(int=sender), before=FirmwareReading(targets=[]), power_state="On", tasks=[], task=task
            )

        fence, lease = order.body.fence, order.lease_fence
        first = uuid.UUID(int=1)
        assert await keep(fence, lease, None) == (True, None, None)
        assert await keep(fence, lease, made(1)) == (True, first, None)
        assert await keep(fence, lease, made(2, "/t/2")) == (True, first, None)
        assert await keep(fence, lease, made(1, "/t/1")) == (True, first, "/t/1")
        assert await keep(fence, lease, made(1, "/t/9")) == (True, first, "/t/1")
        assert await keep(fence, lease, None) == (True, first, "/t/1")
        assert await keep(fence - 1, lease, made(3)) == (False, None, None)
        assert await keep(fence, lease - 1, made(3)) == (False, None, None)
        report = BmcTaskReport(fence=fence, lease_fence=lease, outcome="completed", power_state="On")
        with pytest.raises(Invalid):
            await accept_bmc_report(stage.context, stage.first.id, update.machine.task_id, report, "r")
        other = await another(stage, update.images)
        await other.machine.request(BmcTaskKind.LOOK)
        looked = await stage.take(stage.first, other.machine)
        body = StoreProgress(fence=looked.body.fence, lease_fence=looked.lease_fence, progress=made(1))
        with pytest.raises(Invalid):
            await keep_progress(stage.context, stage.first.id, other.machine.task_id, body)

    play(database_url, tmp_path, scene)
