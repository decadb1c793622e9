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
        ({"NETWORK_VLANS": "1-9"}, "1-9 is no range of VLANs from 2 to 4094"),
        ({"NETWORK_VLANS": "4000-4095"}, "4000-4095 is no range"),
        ({"NETWORK_VLANS": "200-100"}, "200-100 is no range"),
        ({"NETWORK_VLANS": "all"}, "all is no list of VLANs like"),
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


def test_vlans_are_ranges_and_none_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in REQUIRED.items():
        monkeypatch.setenv(f"BERTH_{name}", value)
    assert Settings().limits().networks.vlans == ()
    monkeypatch.setenv("BERTH_NETWORK_VLANS", "100-102, 7,101-103,")
    assert Settings().limits().networks.vlans == (7, 100, 101, 102, 103)
