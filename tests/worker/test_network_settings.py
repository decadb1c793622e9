"""Settings of tenant networks that leave nothing to lease are refused at the start, with the settings' names."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from worker.settings import Settings

REQUIRED = {
    "DATABASE_URL": "postgresql://u@localhost/d", "NATS_URL": "nats://localhost", "TEMPORAL_ADDRESS": "localhost:1",
    "TASK_SIGNING_KEY_FILE": "/k", "TEMPORAL_PAYLOAD_KEY_FILE": "/k",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"NETWORK_POOL": "10.80.0.0/26", "NETWORK_PREFIX_LENGTH": "24"}, "BERTH_NETWORK_PREFIX_LENGTH"),
        ({"PUBLISHED_PORT_FIRST": "33000", "PUBLISHED_PORT_LAST": "32000"}, "BERTH_PUBLISHED_PORT_FIRST"),
    ],
)
def test_what_leaves_nothing_to_lease_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], words: str
) -> None:
    for name, value in REQUIRED.items():
        monkeypatch.setenv(f"BERTH_{name}", value)
    assert Settings().limits().networks.subnets > 0
    for name, value in changes.items():
        monkeypatch.setenv(f"BERTH_{name}", value)
    with pytest.raises(ValidationError, match=words):
        Settings()
