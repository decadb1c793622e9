"""Tasks of a deploy system: signed for one deploy epoch, leased by it alone, reported once."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from node_agent.protocol import TaskType
from orchestrator.nodes.commands.deploy_tasks import Advanced
from tests.deploy_system.ordering import WIPED, claim, order, refused
from tests.deploy_system.stage import INSPECTED, SMBIOS, Stage, connected, forged
from tests.nodes.answers import body_of


def test_an_inspection_is_signed_leased_reported_once_and_recorded(stage: Stage) -> None:
    node = stage.node()
    machine = stage.permit(node)
    asked = stage.inspect(node)
    assert asked.status_code == 200, asked.text
    assert stage.advance(node) is None, "it is not signed before the hello"
    system = machine.enrolled(stage.directory)
    assert stage.advance(node) is None
    assert system.hello().status_code == 200
    assert system.hello().status_code == 200
    assert len(stage.audited(node, "node.deploy_hello")) == 1
    assert stage.advance(node) is Advanced.ISSUED
    task = system.task()
    assert (task["type"], task["node_id"], task["parameters"]) == (
        "metal.inspect", str(node), {"deploy_epoch": 1, "then": "power_off"},
    )  # fmt: skip
    assert system.task() == task, "in the same envelope until it is reported"
    assert system.wait(task["task_id"]).json()["tasks"] == [], "what it knows is not returned"
    assert system.report(task).json() == {"applied": True, "reason": None}
    assert system.report(task).json() == {"applied": False, "reason": "already_applied"}
    assert system.wait().json()["tasks"] == []
    assert stage.advance(node) is Advanced.COMPLETED
    shown = stage.shown(node)
    assert shown["machine"]["smbios_uuid"] == str(SMBIOS)
    assert shown["machine"]["report"]["topology"]["disks"][0]["serial"] == "S1"
    listed = stage.listed(node)
    assert (listed["outcome"], listed["waits"]) == ("completed", None)
    assert stage.ask_permit(node, smbios_uuid=None).status_code == 201, "the machine is known now"


def test_enrolments_refusals_and_leased_tasks_are_counted(stage: Stage) -> None:
    counted = {
        "public": ('berth_api_deploy_enrolments_total{result="issued"}', 'berth_api_deploy_enrolments_total{result="revoked"}'),
        "node": ('berth_api_tasks_dispatched_total{kind="deploy_system"}',),
        "issuer": ("berth_issuer_decided_total",),
    }  # fmt: skip
    samples = [(process, sample) for process, found in counted.items() for sample in found]
    before = [stage.metric(*one) for one in samples]
    node = stage.node()
    system = stage.started(node)
    stage.inspect(node)
    stage.advance(node)
    system.task()
    stage.revoke(node)
    refused(system.machine.enrol(), 403, "deploy_refused", "revoked")
    assert [stage.metric(*one) - was for one, was in zip(samples, before, strict=True)] == [1, 1, 1, 1]


def test_the_agent_of_the_node_neither_leases_nor_reports_a_task_of_its_deploy_system(stage: Stage) -> None:
    node = stage.node()
    system = stage.started(node)
    stage.inspect(node)
    stage.advance(node)
    uri, key = f"spiffe://berth.local/node/{node}", system.machine.key
    serial = uuid.uuid4().int >> 1
    stage.fleet.connection.execute(
        "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
        " values (%s, %s, 0, %s, now(), now() + interval '1 hour')",
        (format(serial, "x"), node, b"0" * 32),
    )
    assert stage.lease_as_agent(node, format(serial, "x")) == [], "while it is queued"
    task = system.task()
    certificate = forged(stage.files.ca_key.read_bytes(), stage.files.ca_certificate.read_bytes(), uri, serial, key)
    with connected(system.machine, certificate, stage.directory) as http:
        assert http.get("/node/v1/tasks/wait", params={"timeout_seconds": 0.3}).json()["tasks"] == []
        body = {"fence": task["fence"], "outcome": "completed", "result": INSPECTED}
        refused(http.post(f"/node/v1/tasks/{task['task_id']}/result", json=body), 404, "not_found")


def test_a_task_of_another_deploy_system_cannot_be_reported(stage: Stage) -> None:
    node, other = stage.node(), stage.node()
    system, stranger = stage.started(node), stage.started(other)
    stage.inspect(node)
    stage.advance(node)
    task = system.task()
    refused(stranger.report(task), 404, "not_found")
    assert stranger.wait().json()["tasks"] == []


def test_a_report_after_a_newer_permission_is_refused(stage: Stage) -> None:
    node = stage.node()
    system = stage.started(node)
    stage.inspect(node)
    stage.advance(node)
    task = system.task()
    stage.permit(node)
    refused(system.report(task), 401, "deploy_system_ended", "superseded")
    listed = stage.listed(node)
    assert listed["outcome"] == "not_run"
    state = stage.fleet.one("select state from node_tasks where id = %s", task["task_id"])
    assert state == "superseded"


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"result": {"smbios_uuid": "x"}}, 422, "invalid"),
        ({"outcome": "failed"}, 422, "invalid"),
        ({"result": {"text": "x" * 70_000}}, 413, "too_large"),
    ],
)
def test_a_report_that_does_not_fit_changes_nothing(
    stage: Stage, changes: dict[str, Any], status: int, code: str
) -> None:
    node = stage.node()
    system = stage.started(node)
    stage.inspect(node)
    stage.advance(node)
    task = system.task()
    refused(system.report(task, **changes), status, code)
    assert system.report({**task, "fence": task["fence"] + 1}).json() == {"applied": False, "reason": "superseded"}
    assert system.report(task).json()["applied"]


def test_a_failed_task_keeps_code_and_evidence(stage: Stage) -> None:
    node = stage.node()
    system = stage.started(node)
    stage.inspect(node)
    stage.advance(node)
    task = system.task()
    failure = {"code": "storage_without_driver", "detail": "0000:00:1f.2"}
    told = system.report(task, outcome="failed", failure=failure, evidence={"seen": 1})
    assert told.json()["applied"], told.text
    assert stage.advance(node) is Advanced.FAILED
    listed = stage.listed(node)
    assert (listed["failure"], listed["result"]) == ("storage_without_driver: 0000:00:1f.2", {"seen": 1})


def test_an_inspection_needs_a_permission_and_no_other_open_task(stage: Stage) -> None:
    node = stage.node()
    refused(stage.inspect(node), 409, "no_deploy_system")
    stage.permit(node)
    assert stage.inspect(node).status_code == 200
    refused(stage.inspect(node), 409, "invalid_state")


@pytest.mark.parametrize("kind", [TaskType.METAL_DEPLOY, TaskType.METAL_WIPE])
def test_what_writes_is_refused_while_another_claim_is_on_the_node(stage: Stage, kind: TaskType) -> None:
    node = stage.node()
    stage.started(node)
    number = claim(stage, node, "maintenance")
    assert stage.ask_permit(node).status_code == 201, "what only reads may run in a maintenance window"
    assert body_of(order(stage, node, kind))["code"] == "node_in_use"
    assert body_of(order(stage, node, kind, number + 1_000))["code"] == "node_in_use"
    assert order(stage, node, kind, number).status == 200


def test_a_task_that_writes_is_not_signed_once_another_claim_is_there(stage: Stage) -> None:
    node = stage.node()
    stage.started(node)
    assert order(stage, node, TaskType.METAL_WIPE).status == 200
    claim(stage, node)
    assert stage.advance(node) is Advanced.NOT_RUN
    listed = stage.listed(node)
    assert listed["failure"].startswith("node_in_use: ")


def test_a_wipe_completes_only_with_every_disk_of_its_order_read_back(stage: Stage) -> None:
    node = stage.node()
    system = stage.started(node)
    (disk,) = WIPED["disks"]
    wrongs: tuple[dict[str, Any], ...] = (
        {"disks": []},
        {"disks": [{**disk, "serial": "S2"}]},
        {"disks": [{**disk, "nonzero_bytes_found": True}]},
        {**WIPED, "storage_without_driver": ["0000:00:1f.2"]},
    )
    for wrong in (*wrongs, WIPED):
        assert order(stage, node, TaskType.METAL_WIPE).status == 200
        assert stage.advance(node) is Advanced.ISSUED
        task = system.task()
        assert system.report(task, wrong).json()["applied"]
        assert stage.advance(node) is (Advanced.COMPLETED if wrong is WIPED else Advanced.FAILED)
        listed = stage.admin.get(f"/admin/nodes/{node}/deploy-system/tasks")["items"][0]
        assert listed["result"] == wrong, "what was reported is kept as evidence"
        assert listed["failure"] is None or listed["failure"].startswith("wipe_not_proven: ")


def test_a_machine_is_not_switched_off_while_its_deploy_system_performs_a_task(stage: Stage) -> None:
    node = stage.node()
    site = stage.fleet.one(
        "insert into sites (name, recovery_key) values (%s, sha256('k')) returning id", f"s-{node.hex[-12:]}"
    )
    stage.fleet.connection.execute(
        "insert into node_bmcs (node_id, site_id, url, certificate_sha256, username, generation, changed_by)"
        " values (%s, %s, 'https://192.0.2.7', sha256('c'), 'berth', 1, 'test')", (node, site)
    )  # fmt: skip
    system = stage.started(node)
    assert stage.inspect(node).status_code == 200
    assert stage.advance(node) is Advanced.ISSUED
    path = f"/admin/nodes/{node}/bmc/power"
    answer = stage.admin.call("POST", path, {"verb": "reset"})
    assert (answer.status_code, answer.json()["state"]) == (409, "deploy_task")
    assert system.report(system.task()).status_code == 200
    assert stage.advance(node) is Advanced.COMPLETED
    assert stage.admin.call("POST", path, {"verb": "reset"}).status_code == 200


def test_a_deploy_system_that_says_no_hello_ends_its_task_in_time(stage: Stage) -> None:
    node = stage.node()
    stage.permit(node)
    stage.inspect(node)
    stage.fleet.connection.execute(
        "update deploy_tasks set waits_until = clock_timestamp() where node_id = %s and ended_at is null", (node,)
    )
    assert stage.advance(node) is Advanced.NOT_RUN


@pytest.mark.full
def test_a_task_that_is_not_reported_in_time_fails(stage: Stage) -> None:
    node = stage.node()
    stage.started(node)
    stage.inspect(node)
    stage.advance(node)
    stage.fleet.connection.execute(
        "update node_tasks set state = 'expired', finished_at = now() where node_id = %s", (node,)
    )
    assert stage.advance(node) is Advanced.FAILED


def test_the_sweeper_ends_what_waited_too_long_and_nothing_else(stage: Stage) -> None:
    """The hello that never came, and the signed task that was never reported: each ends without another request."""
    silent, lost, waiting = stage.node(), stage.node(), stage.node()
    for node in (silent, waiting):
        stage.permit(node)
        stage.inspect(node)
    stage.started(lost)
    stage.inspect(lost)
    stage.sweep()
    assert stage.listed(lost)["issued_at"] is not None
    stage.fleet.connection.execute(
        "update deploy_tasks set waits_until = clock_timestamp() where node_id = %s and ended_at is null", (silent,)
    )
    stage.fleet.connection.execute(
        "update node_tasks set not_before = clock_timestamp() - interval '2 d',"
        " expires_at = clock_timestamp() - interval '1 d' where node_id = %s",
        (lost,),
    )
    stage.sweep()
    ended = stage.listed(silent)
    assert (ended["outcome"], ended["failure"].partition(":")[0], ended["waits"]) == ("not_run", "not_started", None)
    ended = stage.listed(lost)
    assert (ended["outcome"], ended["failure"].partition(":")[0], ended["waits"]) == ("failed", "not_reported", None)
    assert stage.listed(waiting)["outcome"] is None
