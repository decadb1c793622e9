"""A machine without an agent is attested by its deploy system, in a run, while no tenant has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from node_agent.wire.attestations import MetalAttestParameters
from orchestrator.nodes.attestation.queries import find_attestations, find_open_attestations
from orchestrator.nodes.attestation.rules import OnFailure
from orchestrator.nodes.deploy_systems.run_rules import Move
from orchestrator.operations.store.operations import Answer
from orchestrator.sites.commands.attestations import Advanced, advance_attestation, request_attestation
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.api.nodes.attestation.software_tpm import SoftwareTpm
from tests.deploy_system.stage import INSPECTED, TOPOLOGY
from tests.nodes.answers import body_of
from tests.nodes.attestations.answering import PCRS, answer
from tests.sites.running import ADDRESSES, Run, claim, play, to_work

TPM, OTHER_TPM = SoftwareTpm(), SoftwareTpm()
BIOS = {"component": "bios", "unit": "smbios", "model": "Contoso", "version": "2.19.1"}
STATED = {"vendor": "Contoso", "product": "Rack 9", "bios_vendor": "Contoso", "bios_version": "2.19.1"}
_BIND = """
insert into node_tpms (node_id, ek_sha256, ek_public, ak_public) values (%s, sha256(%s), %s, %s)
"""


async def inspected(run: Run, tpm: SoftwareTpm | None = TPM) -> None:
    """The machine was inspected by a run, and has proven this TPM."""
    report: dict[str, Any] = {**INSPECTED, "topology": {**TOPOLOGY, "firmware": STATED}, "firmware": [BIOS]}
    await run.report(await to_work(run), result=report)
    assert await run.advance() is Move.END
    await run.perform()
    assert await run.advance() is Move.CLOSE
    run.stage.fleet.connection.execute(
        "update nodes set driver = 'redfish', enrolled_at = null where id = %s", (run.node,)
    )
    if tpm is not None:
        run.stage.fleet.connection.execute(_BIND, (run.node, tpm.ek_public, tpm.ek_public, tpm.ak_public))


async def ask(run: Run) -> Answer:
    return await request_attestation(run.stage.api, admin_operation(), ADMIN, run.node, lambda: ADDRESSES)


async def judged(run: Run) -> Advanced | None:
    """What the worker makes of the attestation, which it selects exactly if there is something to do."""
    selected = run.node in await find_open_attestations(run.stage.worker, 10)
    advanced = await advance_attestation(run.stage.worker, run.node, OnFailure.REPORT)
    assert selected is (advanced is not None)
    return advanced


async def newest(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = (await find_attestations(run.stage.context.database, run.node))["newest"]
    return found


async def to_attest(run: Run) -> tuple[str, bytes]:
    """The deploy system has said hello, and its task is signed: the serial of its certificate, and the nonce."""
    assert (await ask(run)).status == 200
    await run.perform()
    assert await run.advance() is Move.START
    await run.perform()
    serial = run.boot()
    assert await run.advance() is Move.WORK
    parameters = run.row("select parameters from deploy_tasks where node_id = %s and type = 'metal.attest'", run.node)[
        0
    ]
    return serial, bytes.fromhex(MetalAttestParameters.model_validate(parameters).nonce)


async def attested(
    run: Run, tpm: SoftwareTpm, firmware: list[dict[str, Any]], worker_was_away: bool = False
) -> Advanced | None:
    serial, nonce = await to_attest(run)
    await run.report(serial, result=json.loads(answer(tpm, nonce, firmware).canonical()))
    assert await judged(run) is None, "the machine is on"
    assert await run.advance() is Move.END
    await run.perform()
    assert await run.advance() is Move.CLOSE
    assert run.is_undone()
    if worker_was_away:
        run.stage.fleet.connection.execute("update node_attestations set waits_until = clock_timestamp()")
    return await judged(run)


def test_a_free_machine_is_attested_from_off_to_off(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await inspected(run)
        assert await attested(run, TPM, [BIOS]) is Advanced.PASSED
        found, shown = await newest(run), await run.shown()
        assert (found["verdict"], found["pcrs"], found["compared"]) == ("passed", PCRS, ["inspection"])
        assert (shown["kind"], shown["outcome"], shown["id"]) == ("attest", "completed", found["deploy_run_id"])
        assert run.row("select state from nodes where id = %s", run.node)[0] == "cordoned"
        event = run.row("select payload from outbox where event_type = 'node.attestation_ended'")[0]
        assert (event["attestation_id"], event["verdict"]) == (found["id"], "passed")

    play(database_url, tmp_path, scene)


def test_a_timely_answer_counts_although_the_workers_were_away(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await inspected(run)
        assert await attested(run, TPM, [BIOS], worker_was_away=True) is Advanced.PASSED

    play(database_url, tmp_path, scene)


def test_another_tpm_or_other_firmware_than_inspected_fails(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await inspected(run)
        assert await attested(run, OTHER_TPM, [BIOS]) is Advanced.FAILED
        assert (await newest(run))["code"] == "bad_signature"

    play(database_url, tmp_path, scene)


def test_firmware_that_changed_since_the_inspection_fails(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await inspected(run)
        assert await attested(run, TPM, [{**BIOS, "version": "2.20.0"}]) is Advanced.FAILED
        found = await newest(run)
        assert (found["code"], found["pcrs"]) == ("firmware_changed", PCRS)

    play(database_url, tmp_path, scene)


def test_a_run_that_fails_or_is_stopped_ends_the_attestation(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await inspected(run)
        serial, _ = await to_attest(run)
        await run.report(serial, failure={"code": "task_refused", "detail": "not known"})
        assert await run.advance() is Move.END
        await run.perform()
        assert await run.advance() is Move.CLOSE
        assert await judged(run) is Advanced.FAILED
        found = await newest(run)
        assert (found["code"], found["detail"].partition(":")[0], found["pcrs"]) == ("run_failed", "task_refused", None)
        await ask(run)
        await run.stop()
        assert await run.advance() is Move.CLOSE
        assert await judged(run) is Advanced.FAILED
        assert (await newest(run))["detail"] == "the run was stopped"

    play(database_url, tmp_path, scene)


def test_a_machine_in_use_or_unknown_is_refused(database_url: str, tmp_path: Path) -> None:
    async def refused(run: Run) -> tuple[str, str | None]:
        document = body_of(await ask(run))
        return document["code"], document.get("reason") or document.get("state")

    async def scene(run: Run) -> None:
        await inspected(run, None)
        assert await refused(run) == ("attestation_unavailable", "tpm_not_bound")
        connection = run.stage.fleet.connection
        connection.execute(_BIND, (run.node, TPM.ek_public, TPM.ek_public, TPM.ak_public))
        claim(run, "allocation")
        assert (await refused(run))[0] == "node_in_use", "a tenant has the machine"
        connection.execute("delete from claims where node_id = %s", (run.node,))
        connection.execute("update nodes set state = 'active' where id = %s", (run.node,))
        assert await refused(run) == ("invalid_state", "active")
        connection.execute("update nodes set state = 'cordoned' where id = %s", (run.node,))
        await run.request()
        assert await refused(run) == ("invalid_state", "run_open")
        assert run.row("select count(*) from node_attestations")[0] == 0

    play(database_url, tmp_path, scene)


def test_an_attestation_ends_by_its_deadline_although_its_run_goes_on(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await inspected(run)
        await to_attest(run)
        run.stage.fleet.connection.execute("update node_attestations set waits_until = clock_timestamp()")
        assert await judged(run) is Advanced.FAILED
        assert (await newest(run))["code"] == "expired"
        assert (await run.shown())["outcome"] is None

    play(database_url, tmp_path, scene)
