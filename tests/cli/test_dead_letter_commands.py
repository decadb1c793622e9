"""`berth events dead-letters` against a real API: listed, shown, retried, discarded on the record, closed to tenants."""

from __future__ import annotations

from tests.api.calling import fresh, new_tenant
from tests.client.deployment import Deployment
from tests.support.shell import Shell, bare, deployment

__all__ = ["bare", "deployment"]


def bury(deployment: Deployment, consumer: str, version: int) -> str:
    """A dead letter; its id."""
    row = deployment.database.execute(
        "insert into dead_letters (consumer, version, event_id, event_type, reason, detail, excerpt, tries, first_at)"
        " values (%s, %s, uuidv7(), 'task.finished', 'refused', 'INVALID_ARGUMENT: no', '{}', 5, clock_timestamp())"
        " returning id",
        (consumer, version),
    ).fetchone()
    assert row is not None
    return str(row[0])


def test_dead_letters_from_the_command_line(deployment: Deployment) -> None:
    operator, consumer = Shell(deployment.address, deployment.admin.key), fresh("consumer")
    retried, discarded = (bury(deployment, consumer, version) for version in (1, 2))
    listed = operator.json(f"events dead-letters list --consumer {consumer} --state dead")["items"]
    assert [letter["id"] for letter in listed] == [retried, discarded]
    assert operator.json(f"events dead-letters show {retried}") == listed[0]
    assert "INVALID_ARGUMENT" in operator.run(f"events dead-letters show {retried}").output
    assert operator.json(f"events dead-letters retry {retried}")["retry_asked_at"] is not None
    assert operator.run(f"events dead-letters discard {discarded}").exit_code == 2, "a reason is needed"
    assert operator.json(f"events dead-letters discard {discarded} --reason 'of a test'")["state"] == "discarded"
    operator.refused(f"events dead-letters discard {discarded} --reason again", "invalid_state")
    (settled,) = operator.json(f"events dead-letters list --consumer {consumer} --state discarded")["items"]
    assert settled["id"] == discarded
    tenant = Shell(deployment.address, new_tenant(deployment.admin).key)
    assert tenant.run("events dead-letters list").exit_code != 0
