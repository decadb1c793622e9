"""What goes on with keys and values while a process dies. As in `plays`: with a key, again until answered."""

from __future__ import annotations

from collections.abc import Iterator

from berth.client.calls.keyvalue import unchanged_key, write_key
from tests.crashes.plays import new_key
from tests.crashes.stage import Stage


def a_transaction(stage: Stage) -> Iterator[None]:
    """Commit on a condition that the commit itself ends; what it is answered, the status and the log say the same."""
    tenant = stage.tenant()
    yield
    key = new_key()
    told = [
        tenant.client.commit_transaction(
            operations=[write_key(b"seat", b"taken")], preconditions=[unchanged_key(b"seat", 0)], idempotency_key=key
        )
        for _ in range(2)
    ]
    assert told[0] == told[1]
    assert told[0].status == "committed"
    logged = "select version from log where operation_key = %s and event_type = 'transaction'"
    assert stage.execute(logged, key) == [(told[0].version,)]
    found = tenant.client.get_commit_status(key)
    assert (found.status, found.version) == ("committed", told[0].version)
    assert tenant.client.get_key(b"seat").value == b"taken"
    rival = tenant.client.commit_transaction(
        operations=[write_key(b"seat", b"mine")], preconditions=[unchanged_key(b"seat", 0)], idempotency_key=new_key()
    )
    assert rival.status == "not_committed"
