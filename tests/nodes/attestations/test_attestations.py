"""An attestation is requested once, signed for an agent that can answer, and judged once; it ends by its deadline."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from berth.cli.deployment.attestation_finding import attestation_finding
from node_agent.protocol import FailureCode
from orchestrator.nodes.attestation.queries import find_attestations, find_open_attestations
from orchestrator.nodes.attestation.rules import HISTORY_MAX, OnFailure
from orchestrator.operations.execution import Context
from orchestrator.sites.commands.attestations import Advanced, advance_attestation
from tests.allocations.driving import completed, report, row_of, rows_of, run_with
from tests.allocations.seeding import connect, seed
from tests.api.nodes.attestation.software_tpm import SoftwareTpm
from tests.discovery.topologies import beat, discover, topology
from tests.nodes.answers import body_of
from tests.nodes.attestations.answering import (
    PCRS,
    accept,
    answer,
    ask,
    attest,
    attestation_row,
    attestation_task,
    bind,
    issue,
    ready,
    respond,
)
from worker.sites.attesting import sweep_attestations

TPM, OTHER_TPM = SoftwareTpm(), SoftwareTpm()
OTHER_PCRS = ["11" * 32] * 8
EVENTS = "select payload from outbox where event_type = 'node.attestation_ended' order by id"
AUDITED = "select action, principal_id, detail from audit where action ~ '^node.(attest|accept)' order by id"
QUARANTINES = (
    "select slot_index, source, reason, evidence from slot_quarantines where returned_at is null order by slot_index"
)


def test_a_node_proves_its_tpm_for_a_nonce_that_is_new_each_time(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> tuple[Any, dict[str, Any], bytes, bytes]:
        await ready(context, database_url, node, TPM)
        asked = body_of(await ask(context, node))
        assert (asked["verdict"], asked["waits"]["for"], asked["deploy_run_id"]) == (None, "worker", None)
        again = body_of(await ask(context, node))
        assert again["id"] == asked["id"], "an open one is the answer"
        nonce = await issue(context, database_url, node)
        assert asked["nonce"] == nonce.hex()
        given = answer(TPM, nonce, [{"component": "bios", "unit": "smbios", "version": "1"}])
        assert await respond(context, database_url, node, given) is Advanced.PASSED
        shown = await find_attestations(context.database, node)
        await ask(context, node)
        return asked, shown, nonce, await issue(context, database_url, node)

    asked, shown, nonce, second = run_with(database_url, way)
    assert (nonce == second, len(second)) == (False, 32)
    newest = shown["newest"]
    assert (newest["id"], newest["verdict"], newest["code"], newest["pcrs"]) == (asked["id"], "passed", None, PCRS)
    assert (newest["compared"], shown["accepted"], newest["waits"]) == ([], None, None)
    assert (newest["evidence"]["proof"]["pcrs"], newest["evidence"]["firmware"][0]["version"]) == (PCRS, "1")
    ended = {"node_id": str(node), "attestation_id": asked["id"], "verdict": "passed", "code": None, "detail": ""}
    assert rows_of(database_url, EVENTS) == [(ended,)]
    audited = rows_of(database_url, AUDITED)
    assert [action for action, _, _ in audited] == [
        "node.attest",
        "node.attest",
        "node.attestation_ended",
        "node.attest",
    ]
    assert audited[2][1:] == ("attestation", {**ended, "compared": []})


def test_the_answer_of_an_earlier_nonce_or_of_another_tpm_fails(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        await ask(context, node)
        old = answer(TPM, await issue(context, database_url, node))
        assert await respond(context, database_url, node, old) is Advanced.PASSED
        await ask(context, node)
        await issue(context, database_url, node)
        assert await respond(context, database_url, node, old) is Advanced.FAILED
        assert attestation_row(database_url)["code"] == "other_nonce"
        assert await attest(context, database_url, node, OTHER_TPM) is Advanced.FAILED
        found = attestation_row(database_url)
        assert (found["verdict"], found["code"], found["pcrs"]) == ("failed", "bad_signature", None)
        assert found["evidence"]["proof"], "what was sent is kept"

    run_with(database_url, way)
    assert rows_of(database_url, QUARANTINES) == [], "a failed attestation reports, unless a setting says more"
    assert row_of(database_url, "select state, online from nodes limit 1") == {"state": "active", "online": True}
    finding = attestation_finding(database_url)
    assert (finding.verdict, "(bad_signature)" in finding.detail) == ("warning", True)


def test_a_tpm_that_was_forgotten_meanwhile_proves_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        await ask(context, node)
        given = answer(TPM, await issue(context, database_url, node))
        bind(database_url, node, OTHER_TPM)
        assert await respond(context, database_url, node, given) is Advanced.FAILED

    run_with(database_url, way)
    assert attestation_row(database_url)["code"] == "bad_signature"


def test_accepted_pcrs_are_compared_and_others_can_be_accepted(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        assert await attest(context, database_url, node, TPM) is Advanced.PASSED
        first = attestation_row(database_url)["id"]
        shown = body_of(await accept(context, node, first))
        assert (shown["accepted"]["pcrs"], shown["accepted"]["attestation_id"]) == (PCRS, str(first))
        assert await attest(context, database_url, node, TPM, pcrs=OTHER_PCRS) is Advanced.FAILED
        changed = attestation_row(database_url)
        assert (changed["code"], changed["pcrs"], changed["compared"]) == ("pcrs_changed", OTHER_PCRS, ["pcrs"])
        assert (await accept(context, node, changed["id"])).status == 200
        assert await attest(context, database_url, node, TPM, pcrs=OTHER_PCRS) is Advanced.PASSED
        assert await attest(context, database_url, node, OTHER_TPM) is Advanced.FAILED
        unproven = await accept(context, node, attestation_row(database_url)["id"])
        assert (unproven.status, body_of(unproven)["state"]) == (409, "bad_signature")
        assert (await accept(context, node, uuid.uuid4())).status == 404
        shown = await find_attestations(context.database, node)
        assert shown["accepted"]["pcrs"] == OTHER_PCRS
        assert [one["evidence"] for one in shown["earlier"]] == [None] * 3

    run_with(database_url, way)
    assert [row[0] for row in rows_of(database_url, AUDITED)].count("node.accept_attestation") == 2


def test_firmware_is_compared_with_the_list_of_the_model(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    model = {"vendor": "Contoso", "product": "Rack 9"}
    components = [
        {"component": "bios", "model": None, "versions": ["2"]},
        {"component": "bmc", "model": None, "versions": ["1"]},
    ]

    def read(version: str) -> list[dict[str, Any]]:
        return [{"component": "bios", "unit": "smbios", "version": version}]

    async def way(context: Context) -> None:
        await discover(context, database_url, node, topology(firmware=model), ("attest",))
        bind(database_url, node, TPM)
        with connect(database_url) as connection:
            connection.execute(
                "insert into firmware_lists (vendor, product, components, changed_by) values (%s, %s, %s, 'a')",
                (model["vendor"], model["product"], json.dumps(components)),
            )
        assert await attest(context, database_url, node, TPM, firmware=read("2")) is Advanced.PASSED
        assert attestation_row(database_url)["compared"] == ["firmware_list"], "the agent does not read the BMC"
        assert await attest(context, database_url, node, TPM, firmware=read("1")) is Advanced.FAILED
        assert attestation_row(database_url)["code"] == "firmware_not_listed"
        assert await attest(context, database_url, node, TPM, firmware=[]) is Advanced.FAILED
        assert attestation_row(database_url)["code"] == "firmware_not_read"

    run_with(database_url, way)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (FailureCode.INTERRUPTED, "task_failed"),
        ({"proof": "x"}, "bad_report"),
        ({}, "bad_report"),
        ({"failure": "tpm_absent", "detail": "none"}, "tpm_absent"),
        ({"failure": "tpm_failed", "detail": "it does not answer"}, "tpm_failed"),
    ],
)
def test_what_is_no_proof_fails_with_its_code(database_url: str, found: Any, code: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        await ask(context, node)
        await issue(context, database_url, node)
        assert await respond(context, database_url, node, found) is Advanced.FAILED

    run_with(database_url, way)
    row = attestation_row(database_url)
    assert (row["verdict"], row["code"], row["pcrs"]) == ("failed", code, None)


@pytest.mark.parametrize(
    ("change", "status", "code", "value"),
    [
        ("delete from node_tpms", 409, "attestation_unavailable", "tpm_not_bound"),
        ("update node_tpms set ek_public = null, ak_public = null", 409, "attestation_unavailable", "tpm_not_bound"),
        ("update nodes set agent_features = '{burn_in}'", 409, "attestation_unavailable", "agent"),
        ("update nodes set online = false", 409, "invalid_state", "offline"),
        ("update nodes set state = 'registered'", 409, "invalid_state", "registered"),
    ],
)
def test_a_node_that_cannot_answer_is_refused_and_nothing_is_stored(
    database_url: str, change: str, status: int, code: str, value: str
) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        with connect(database_url) as connection:
            connection.execute("set session_replication_role = replica")
            connection.execute(change)
        refused = await ask(context, node)
        document = body_of(refused)
        assert (refused.status, document["code"], document.get("reason") or document["state"]) == (status, code, value)
        assert (await ask(context, uuid.uuid4())).status == 404

    run_with(database_url, way)
    assert rows_of(database_url, "select id from node_attestations") == []


def test_of_two_requests_at_once_one_nonce_is_made(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        answers = await asyncio.gather(*(ask(context, node) for _ in range(8)))
        assert {one.status for one in answers} == {200}
        assert len({body_of(one)["nonce"] for one in answers}) == 1
        advanced = await asyncio.gather(*(advance_attestation(context, node, OnFailure.REPORT) for _ in range(4)))
        assert [one for one in advanced if one is not None] == [Advanced.ISSUED]

    run_with(database_url, way)
    assert row_of(database_url, "select count(*) as n from node_tasks where type = 'diag.attest'")["n"] == 1


def test_an_answer_after_the_deadline_does_not_count(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        await ask(context, node)
        given = answer(TPM, await issue(context, database_url, node))
        task = attestation_task(database_url)
        with connect(database_url) as connection:
            connection.execute("update node_attestations set waits_until = waits_since + interval '1 microsecond'")
        assert (await report(context, task, completed(task, json.loads(given.canonical())))).applied
        assert await advance_attestation(context, node, OnFailure.REPORT) is Advanced.FAILED
        assert attestation_row(database_url)["code"] == "late"

    run_with(database_url, way)


def test_what_is_not_answered_ends_by_its_deadline(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        await ask(context, node)
        with connect(database_url) as connection:
            connection.execute("update nodes set online = false")
            assert await find_open_attestations(context, 10) == []
            connection.execute("update node_attestations set waits_until = clock_timestamp()")
        assert await find_open_attestations(context, 10) == [node]
        assert await advance_attestation(context, node, OnFailure.REPORT) is Advanced.FAILED
        assert attestation_row(database_url)["code"] == "node_offline"
        await beat(context, node, uuid.uuid4(), ("attest",))
        await ask(context, node)
        await issue(context, database_url, node)
        with connect(database_url) as connection:
            connection.execute(
                "update node_tasks set state = 'expired', finished_at = now() where type = 'diag.attest'"
            )
        await sweep_attestations(context, OnFailure.QUARANTINE, 10)
        assert attestation_row(database_url)["code"] == "expired"

    run_with(database_url, way)
    assert rows_of(database_url, QUARANTINES) == [], "no answer is no evidence about the machine"


def test_a_setting_takes_the_slots_of_a_failed_node_into_quarantine(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        await ask(context, node)
        given = answer(OTHER_TPM, await issue(context, database_url, node))
        assert await respond(context, database_url, node, given, OnFailure.QUARANTINE) is Advanced.QUARANTINED

    run_with(database_url, way)
    found = rows_of(database_url, QUARANTINES)
    assert [(slot, source) for slot, source, _, _ in found] == [(slot, "attestation") for slot in range(8)]
    assert found[0][2].startswith("bad_signature: found by attestation ")
    assert row_of(database_url, "select state from nodes limit 1")["state"] == "active"


@pytest.mark.full
def test_the_newest_are_kept_with_the_task_of_the_last(database_url: str) -> None:
    """What one round keeps is in `test_a_node_proves_its_tpm_for_a_nonce_that_is_new_each_time`."""
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, TPM)
        for _ in range(HISTORY_MAX + 2):
            assert await attest(context, database_url, node, TPM) is Advanced.PASSED

    run_with(database_url, way)
    assert row_of(database_url, "select count(*) as n from node_attestations")["n"] == HISTORY_MAX
    assert row_of(database_url, "select count(*) as n from node_tasks where type = 'diag.attest'")["n"] == 1
