"""A node proves its identity on every call, and gets only its own tasks, each at least once (P10; failures 8 and 25)."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.nodes.conftest import NodeListener


def test_without_a_certificate_nothing_is_answered(listener: NodeListener) -> None:
    with pytest.raises(httpx.TransportError):
        listener.client(None).get("/node/v1/tasks/wait")


def test_a_certificate_that_was_never_recorded_is_refused(listener: NodeListener) -> None:
    _, path = listener.certificate(listener.nodes()[0])
    assert listener.client(path).get("/node/v1/tasks/wait").status_code == 401


def test_a_node_that_does_not_exist_is_refused(listener: NodeListener) -> None:
    _, path = listener.certificate(uuid.uuid4())
    assert listener.client(path).get("/node/v1/tasks/wait").status_code == 401


@pytest.mark.parametrize(
    "change",
    [
        "update node_certificates set revoked_at = now() where node_id = %s",
        "update nodes set epoch = epoch + 1 where id = %s",
        "update nodes set state = 'retired' where id = %s",
    ],
)
def test_what_no_longer_counts_is_refused_at_once(listener: NodeListener, change: str) -> None:
    node = listener.node(listener.nodes()[0])
    assert node.wait() == []
    listener.fleet.connection.execute(change, (node.node_id,))
    assert node.http.get("/node/v1/tasks/wait").status_code == 401


def test_the_certificate_and_not_the_request_chooses_the_node(listener: NodeListener) -> None:
    mine, other = listener.nodes(2)
    task = listener.queue_task(other)
    node = listener.node(mine)
    assert node.wait() == []
    for body in ({"fence": 1, "outcome": "completed", "result": {}}, {"fence": 1, "phases": [{"phase": "lease"}]}):
        verb = "result" if "outcome" in body else "progress"
        refused = node.http.post(f"/node/v1/tasks/{task}/{verb}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    assert listener.state_of(task) == "queued"


def test_a_query_parameter_that_a_path_does_not_know_is_refused(listener: NodeListener) -> None:
    (mine,) = listener.nodes()
    node = listener.node(mine)
    refused = node.http.get("/node/v1/tasks/wait", params={"timeout_seconds": 0, "knwon": str(mine)})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert node.http.get("/node/v1/tasks/wait", params={"timeout_seconds": 0}).status_code == 200


def test_tasks_may_not_be_cached(listener: NodeListener) -> None:
    (mine,) = listener.nodes()
    task = listener.queue_task(mine)
    answer = listener.node(mine).http.get("/node/v1/tasks/wait", params={"timeout_seconds": 5})
    assert [handed_out["task_id"] for handed_out in answer.json()["tasks"]] == [str(task)]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "evidence",
    ['"\\ud800"', "NaN", "1e999", "[" * 900 + "]" * 900, "[" * 30_000 + "]" * 30_000, '"\\u0000"'],
    ids=["surrogate", "nan", "infinite", "deep", "deeper", "nul"],
)
def test_a_result_that_cannot_be_stored_is_refused(listener: NodeListener, evidence: str) -> None:
    (mine,) = listener.nodes()
    task = listener.queue_task(mine)
    node = listener.node(mine)
    body = f'{{"fence": 1, "outcome": "completed", "result": {{"evidence": {{"log": {evidence}}}}}}}'
    headers = {"content-type": "application/json"}
    refused = node.http.post(f"/node/v1/tasks/{task}/result", content=body, headers=headers)
    assert refused.status_code in (400, 413, 422), refused.text
    assert refused.json()["code"] in ("malformed", "too_large", "invalid")
    assert listener.state_of(task) == "queued"


def test_a_waiting_node_gets_its_task_when_it_comes(listener: NodeListener) -> None:
    first, second = (listener.node(node) for node in listener.nodes(2))
    with ThreadPoolExecutor() as threads:
        waits = [threads.submit(node.wait, 15.0) for node in (first, second)]
        tasks = [listener.queue_task(node.node_id) for node in (first, second)]
        assert [wait.result() for wait in waits] == [[tasks[0]], [tasks[1]]]
    assert listener.state_of(tasks[0]) == "dispatched"


def test_a_lost_answer_loses_no_task(listener: NodeListener) -> None:
    node = listener.node(listener.nodes()[0])
    task = listener.queue_task(node.node_id)
    assert node.wait(5.0) == [task], "this answer is lost on the way"
    assert node.wait(5.0) == [task], "so it is handed out again"
    assert node.wait(0.0, known=[task]) == [], "until the agent says that it has it"


def test_an_expired_task_is_not_handed_out(listener: NodeListener) -> None:
    node = listener.node(listener.nodes()[0])
    task = listener.queue_task(node.node_id, seconds=-1)
    assert node.wait(0.2) == []
    assert listener.state_of(task) == "queued"


def test_a_second_wait_of_the_same_node_ends_the_first(listener: NodeListener) -> None:
    node = listener.node(listener.nodes()[0])
    ended = threading.Event()

    def first() -> list[str]:
        found = node.wait(30.0)
        ended.set()
        return found

    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(first)
        while listener.waiting_nodes() == 0:
            assert not waiting.done()
        task = None
        second = threads.submit(node.wait, 15.0)
        assert ended.wait(10), "the first wait ended"
        task = listener.queue_task(node.node_id)
        assert (waiting.result(), second.result()) == ([], [task])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"fence": "1", "outcome": "completed"}',
        b'{"fence": 1, "outcome": "maybe"}',
        b'{"fence": 1, "x": 1}',
        rb'{"fence": 1, "outcome": "completed", "result": {"deep": ["\u0000"]}}',
        rb'{"fence": 1, "outcome": "failed", "failure": {"code": "driver_error", "detail": "\u0000"}}',
    ],
)
def test_a_report_that_cannot_be_read_changes_nothing(listener: NodeListener, body: bytes) -> None:
    node = listener.node(listener.nodes()[0])
    task = listener.queue_task(node.node_id)
    headers = {"content-type": "application/json"}
    refused = node.http.post(f"/node/v1/tasks/{task}/result", content=body, headers=headers)
    assert refused.status_code in (400, 422)
    assert refused.json()["outcome"] == "not_done"
    assert listener.state_of(task) == "queued"


def test_a_result_counts_once(listener: NodeListener) -> None:
    node = listener.node(listener.nodes()[0])
    task = listener.queue_task(node.node_id)
    assert node.wait(5.0) == [task]
    report = {"fence": 1, "outcome": "completed", "result": {"healthy": True}}
    answers = [node.http.post(f"/node/v1/tasks/{task}/result", json=report).json() for _ in range(2)]
    assert answers[0]["applied"] is True
    assert (answers[1]["applied"], answers[1]["reason"]) == (False, "already_applied")
    stale = node.http.post(f"/node/v1/tasks/{task}/result", json={**report, "fence": 0}).json()
    assert (stale["applied"], stale["reason"]) == (False, "superseded")
    assert listener.fleet.one("select count(*) from outbox where payload ->> 'task_id' = %s", task) == 1


def test_the_listener_stops_at_once_although_nodes_wait(listener: NodeListener) -> None:
    node = listener.node(listener.nodes()[0])
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(node.wait, 30.0)
        while listener.waiting_nodes() == 0:
            assert not waiting.done()
        process = listener.process.process
        assert process is not None
        process.terminate()
        assert process.wait(10) == 0
        assert waiting.result() == []
