"""A node that loses its right while its long poll is open gets no task from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.at_length import at_length
from tests.nodes.conftest import NodeListener

CHANGES = {
    "certificate revoked": "update node_certificates set revoked_at = now() where node_id = %s",
    "certificate of an earlier epoch": "update node_certificates set node_epoch = node_epoch - 1 where node_id = %s",
    "node enrolled anew": "update nodes set epoch = epoch + 1 where id = %s",
    "identity conflict": "update nodes set identity_conflict_at = now() where id = %s",
    "node retired": "update nodes set state = 'retired' where id = %s",
}


@pytest.mark.parametrize("change", at_length(CHANGES, list(CHANGES)[:2]))
def test_a_right_that_ends_during_a_long_poll_ends_the_poll_without_a_task(listener: NodeListener, change: str) -> None:
    losing, other = (listener.node(node) for node in listener.nodes(2))
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(losing.wait, 3.0)
        while listener.waiting_nodes() == 0:
            assert not waiting.done()
        listener.fleet.connection.execute(CHANGES[change].encode(), (losing.node_id,))
        task = listener.queue_task(losing.node_id)
        # Another node is served meanwhile, so the listener has evaluated both queues.
        served = listener.queue_task(other.node_id)
        assert other.wait(10.0) == [served]
        assert waiting.result() == []
    assert listener.state_of(task) == "queued"
    assert losing.http.get("/node/v1/tasks/wait").status_code in (401, 403)


def test_a_task_of_an_earlier_epoch_is_not_handed_to_the_node_enrolled_anew(listener: NodeListener) -> None:
    """Its envelope was signed for the epoch that the node had when the task was queued."""
    (node_id,) = listener.nodes()
    task = listener.queue_task(node_id)
    listener.fleet.connection.execute("update nodes set epoch = epoch + 1 where id = %s", (node_id,))
    node = listener.node(node_id)
    assert node.wait(0.5) == []
    assert listener.state_of(task) == "queued"
