"""Runs that wipe a machine: what they need, how long they may take, and what counts as a proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.deploy_system.effects.erasing import WHOLE_READ_BYTES_MAX
from node_agent.deploy_system.effects.steps import GIB, STEPS
from orchestrator.nodes.deploy_systems.run_rules import (
    RUN_SECONDS_MAX,
    WIPE_SECONDS_MAX,
    Move,
    RunKind,
    certificate_seconds,
    wipe_seconds,
    work_step_seconds,
)
from tests.deploy_system.ordering import WIPED
from tests.deploy_system.stage import SMBIOS
from tests.nodes.answers import body_of
from tests.sites.running import Run, claim, inspect, play, to_work

DISK = {"name": "sda", "serial": "S1", "size_bytes": 4096}
WIPE = RunKind.WIPE


def test_a_wipe_erases_every_disk_of_the_inspection_and_shows_the_proof(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        inspect(run, tpm={"version": 2})
        serial = await to_work(run, WIPE)
        await run.report(serial, result={**WIPED, "tpm": "cleared"})
        parameters, seconds = run.row(
            "select t.parameters, t.seconds_max from deploy_tasks t where t.node_id = %s and type = 'metal.wipe'",
            run.node,
        )
        assert parameters["disks"] == [{"serial": "S1", "size_bytes": 4096}]
        assert (parameters["clear_tpm"], parameters["then"], seconds) == (True, "power_off", wipe_seconds([4096]))
        lived = run.row("select certificate_seconds from deploy_systems where node_id = %s", run.node)[0]
        assert lived == certificate_seconds(seconds)
        assert await run.advance() is Move.END
        await run.perform()
        assert await run.advance() is Move.CLOSE
        shown = await run.shown()
        assert (shown["kind"], shown["outcome"], shown["wipe"]["proven"]) == ("wipe", "completed", True)
        assert shown["wipe"]["report"] == {**WIPED, "tpm": "cleared"}
        assert run.is_undone()
        said = run.row(
            "select detail from audit_pending where action = 'node.request_deploy_run' and subject = %s order by id desc",
            f"nodes/{run.node}",
        )[0]
        assert (said["kind"], said["disks"]) == ("wipe", [{"serial": "S1", "size_bytes": 4096}])

    play(database_url, tmp_path, scene)


def test_a_wipe_with_an_unproven_disk_is_a_failed_run_with_its_evidence(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        inspect(run)
        found = {**WIPED, "disks": [{**WIPED["disks"][0], "nonzero_bytes_found": True}]}
        await run.report(await to_work(run, WIPE), result=found)
        assert await run.advance() is Move.END
        await run.perform()
        assert await run.advance() is Move.CLOSE
        shown = await run.shown()
        assert (shown["outcome"], shown["failure"].partition(":")[0]) == ("failed", "wipe_not_proven")
        assert shown["wipe"] == {"proven": False, "report": found}
        assert run.is_undone()

    play(database_url, tmp_path, scene)


def test_a_wipe_is_refused_unless_the_inspection_names_everything(database_url: str, tmp_path: Path) -> None:
    async def refused(run: Run) -> tuple[str, str | None]:
        document = body_of(await run.request(kind=WIPE, smbios=None))
        return document["code"], document.get("reason") or document.get("state")

    async def scene(run: Run) -> None:
        assert await refused(run) == ("machine_not_wipeable", "not_inspected")
        for changes, reason in (
            ({"disks": []}, "no_disks"),
            ({"disks": [DISK, {"name": "sdb", "size_bytes": 4096}]}, "disk_without_serial"),
            ({"disks": [DISK, {"name": "sdb", "serial": "S2"}]}, "disk_without_serial"),
            ({"disks": [DISK, {**DISK, "name": "sdb"}]}, "disk_ambiguous"),
            ({"storage_without_driver": ["0000:00:1f.2"]}, "storage_without_driver"),
        ):
            inspect(run, **changes)
            assert await refused(run) == ("machine_not_wipeable", reason)
        inspect(run)
        other = SMBIOS.__class__(int=7)
        assert body_of(await run.request(kind=WIPE, smbios=other))["reason"] == "other_machine"
        connection = run.stage.fleet.connection
        connection.execute("update nodes set state = 'active' where id = %s", (run.node,))
        assert await refused(run) == ("invalid_state", "active")
        connection.execute("update nodes set state = 'cordoned' where id = %s", (run.node,))
        for kind in ("allocation", "maintenance"):
            claim(run, kind)
            assert (await refused(run))[0] == "node_in_use", "a window does not permit it"
            connection.execute("delete from claims where node_id = %s", (run.node,))
        assert run.row("select count(*) from deploy_runs")[0] == 0
        assert body_of(await run.request())["kind"] == "inspect"
        assert await refused(run) == ("invalid_state", "run_open"), "an open run of another kind is no answer"

    play(database_url, tmp_path, scene)


def test_nothing_is_erased_once_a_claim_is_there(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        inspect(run)
        await to_work(run, WIPE)
        claim(run, "maintenance")
        await run.sign()
        assert run.row("select count(*) from node_tasks where type = 'metal.wipe'")[0] == 0
        assert await run.advance() is Move.END
        assert (await run.shown())["failure"].startswith("node_in_use: ")

    play(database_url, tmp_path, scene)


def test_a_hello_of_a_wipe_is_not_waited_for_as_long_as_its_disks_need(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        inspect(run, disks=[{**DISK, "size_bytes": 4 << 40}])
        await run.request(kind=WIPE)
        await run.perform()
        assert await run.advance() is Move.START
        await run.perform()
        waits, seconds = run.row(
            "select extract(epoch from waits_until - waits_since)::int, seconds_max from deploy_tasks where node_id = %s",
            run.node,
        )
        assert (waits, seconds) == (RUN_SECONDS_MAX, wipe_seconds([4 << 40]))

    play(database_url, tmp_path, scene)


@pytest.mark.parametrize("sizes", [[4096], [64 << 20] * 3, [240 * GIB], [2 * GIB, 1 << 40]])
def test_a_wipe_has_the_time_of_its_steps(sizes: list[int]) -> None:
    def bound(name: str, volume: int = 0) -> float:
        return STEPS[name].seconds + STEPS[name].seconds_per_gib * volume / GIB

    once = 2 * bound("find_disks") + bound("uefi_variables") + bound("clear_tpm")
    for size in sizes:
        read = min(size, WHOLE_READ_BYTES_MAX)
        once += (
            bound("plant_markers") + bound("erase", size) + bound("overwrite", size) + 2 * bound("verify_wipe", read)
        )
    assert once < wipe_seconds(sizes) <= WIPE_SECONDS_MAX


def test_every_time_of_a_wipe_is_bounded() -> None:
    assert wipe_seconds([16 << 40] * 40) == WIPE_SECONDS_MAX
    assert certificate_seconds(WIPE_SECONDS_MAX) == WIPE_SECONDS_MAX + RUN_SECONDS_MAX
    assert work_step_seconds(WIPE_SECONDS_MAX) > WIPE_SECONDS_MAX + RUN_SECONDS_MAX
