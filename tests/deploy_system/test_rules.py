"""Which token is accepted from which machine, decided from the row alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from orchestrator.nodes.deploy_systems.refusals import DeployReason
from orchestrator.nodes.deploy_systems.rules import Permission, Presented, refusal_of
from tests.deploy_system.stage import MAC, OTHER_MAC, SMBIOS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(minutes=1), NOW - timedelta(minutes=1)
KEY, OTHER_KEY = b"1" * 32, b"2" * 32
PERMITTED = Permission(
    id=UUID(int=1), node_id=UUID(int=2), deploy_epoch=3, smbios_uuid=SMBIOS, macs=[MAC], tpm_required=False, claim_id=None,
    certificate_seconds=600, expires_at=LATER, ended_by=None, used_at=None, key_sha256=None, refusal=None, serial=None,
    not_after=None, hello_at=None, clock=NOW,
)  # fmt: skip
PRESENTED = Presented(3, SMBIOS, [MAC, OTHER_MAC], KEY)
USED = {"used_at": EARLIER, "key_sha256": KEY}
SIGNED = {**USED, "serial": "1", "not_after": LATER}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, None),
        ({"expires_at": NOW}, "expired"),
        (USED, None),
        ({**USED, "expires_at": NOW}, "expired"),
        ({**USED, "key_sha256": OTHER_KEY}, "used"),
        ({**SIGNED, "expires_at": EARLIER}, None),
        ({**SIGNED, "not_after": NOW}, "expired"),
        ({**SIGNED, "key_sha256": OTHER_KEY, "not_after": NOW}, "used"),
        ({**USED, "refusal": "the node is retired"}, "certificate_refused"),
        ({**SIGNED, "ended_by": "superseded"}, "superseded"),
        ({"ended_by": "revoked"}, "revoked"),
        ({"smbios_uuid": UUID(int=9)}, "other_machine"),
        ({"macs": [MAC, "02:00:00:00:00:09"]}, "other_machine"),
        ({"deploy_epoch": 4, "ended_by": "revoked"}, "other_epoch"),
    ],
)
def test_a_row_accepts_or_refuses_a_machine(row: dict[str, Any], reason: str | None) -> None:
    wanted = None if reason is None else DeployReason(reason)
    assert refusal_of(replace(PERMITTED, **row), PRESENTED) is wanted


def test_a_challenge_is_refused_for_a_used_token() -> None:
    asked = replace(PRESENTED, key_sha256=None)
    assert refusal_of(PERMITTED, asked) is None
    assert refusal_of(replace(PERMITTED, **USED), asked) is DeployReason.USED  # type: ignore[arg-type]
