"""Listeners and issuer are killed while a deploy system enrols and reports: one certificate, and a report that counts once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from orchestrator.crash_points import CrashPoint
from orchestrator.nodes.commands.deploy_tasks import Advanced
from tests.deploy_system.ordering import refused
from tests.deploy_system.stage import Stage

ENROL = [CrashPoint.ENROL_DEPLOY_SYSTEM_BEFORE_COMMIT, CrashPoint.ENROL_DEPLOY_SYSTEM_AFTER_COMMIT]
ISSUE = [CrashPoint.ISSUE_DEPLOY_CERTIFICATE_BEFORE_COMMIT, CrashPoint.ISSUE_DEPLOY_CERTIFICATE_AFTER_COMMIT]
REPORT = [CrashPoint.ACCEPT_DEPLOY_RESULT_BEFORE_COMMIT, CrashPoint.ACCEPT_DEPLOY_RESULT_AFTER_COMMIT]


@pytest.mark.quick("enrol_deploy_system.after_commit")
@pytest.mark.parametrize("point", ENROL)
def test_a_token_whose_answer_was_lost_gets_its_machine_one_certificate(stage: Stage, point: CrashPoint) -> None:
    node = stage.node()
    machine = stage.permit(node)
    with stage.dying("public", point), pytest.raises(httpx.TransportError):
        machine.enrol()
    is_used = stage.facts(node)[0][2] is not None
    assert is_used == (point is CrashPoint.ENROL_DEPLOY_SYSTEM_AFTER_COMMIT)
    first, again = machine.enrol(), machine.enrol()
    assert first.json()["certificate_pem"] == again.json()["certificate_pem"]
    assert len(stage.audited(node, "node.enrol_deploy_system")) == 1
    assert len(stage.audited(node, "node.issue_deploy_certificate")) == 1
    thief = stage.permit(stage.node())  # only for a new key
    thief.medium = machine.medium
    refused(thief.enrol(), 403, "deploy_refused", "used")


@pytest.mark.quick("issue_deploy_certificate.before_commit")
@pytest.mark.parametrize("point", ISSUE)
def test_the_next_issuer_signs_what_the_one_before_it_left(stage: Stage, point: CrashPoint) -> None:
    node = stage.node()
    machine = stage.permit(node)
    with ThreadPoolExecutor(1) as pool, stage.dying("issuer", point):
        asked = pool.submit(machine.enrol)
    answer = asked.result()
    assert answer.status_code == 200, answer.text
    assert len(stage.audited(node, "node.issue_deploy_certificate")) == 1
    assert machine.enrol().json()["certificate_pem"] == answer.json()["certificate_pem"]


@pytest.mark.quick("accept_deploy_result.after_commit")
@pytest.mark.parametrize("point", REPORT)
def test_a_report_whose_answer_was_lost_counts_once(stage: Stage, point: CrashPoint) -> None:
    node = stage.node()
    system = stage.started(node)
    stage.inspect(node)
    assert stage.advance(node) is Advanced.ISSUED
    task = system.task()
    with stage.dying("node", point), pytest.raises(httpx.TransportError):
        system.report(task)
    counted = point is CrashPoint.ACCEPT_DEPLOY_RESULT_AFTER_COMMIT
    assert system.report(task).json() == {"applied": not counted, "reason": "already_applied" if counted else None}
    events = "select count(*) from (select subject from outbox union all select subject from log) e where subject = %s"
    assert stage.fleet.one(events, f"tasks/{task['task_id']}") == 1
    assert stage.advance(node) is Advanced.COMPLETED
