"""Each guest's QEMU has files and a user for itself: what of libvirt's settings and of the host's accounts breaks that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from node_agent.checks.finding import Code, Severity
from node_agent.checks.separation import check_separation, judge_separation
from node_agent.discovery.reading import Gaps, Tree

FIRST, LAST = 64_500, 64_563


@pytest.mark.parametrize(
    ("settings", "accounts", "code"),
    [
        ({}, {0: "root", 64_055: "libvirt-qemu", 65_534: "other"}, None),
        ({"dynamic_ownership": "1"}, {}, None),
        ({"dynamic_ownership": "0"}, {}, Code.GUEST_OWNERSHIP_OFF),
        ({}, {FIRST: "first"}, Code.GUEST_USERS_TAKEN),
        ({}, {LAST: "last"}, Code.GUEST_USERS_TAKEN),
        ({}, {FIRST - 1: "before", LAST + 1: "behind"}, None),
        (None, {}, Code.LIBVIRT_SETTINGS_UNREADABLE),
        (None, {FIRST: "first"}, Code.GUEST_USERS_TAKEN),
    ],
)
def test_settings_and_accounts(
    settings: Mapping[str, str] | None, accounts: Mapping[int, str], code: Code | None
) -> None:
    assert judge_separation(settings, accounts, FIRST, LAST).code is code


def test_it_refuses_without_ownership_and_warns_of_accounts_naming_some() -> None:
    refused = judge_separation({"dynamic_ownership": "0"}, {}, FIRST, LAST)
    assert refused.severity is Severity.REFUSES
    assert "dynamic_ownership" in refused.line()
    accounts = {FIRST + n: f"user{n}" for n in range(5)}
    warned = judge_separation({}, accounts, FIRST, LAST)
    assert warned.severity is Severity.WARNS
    assert "user0, user1, user2 and 2 more" in warned.line()


def test_the_settings_are_those_of_the_host(tmp_path: Path) -> None:
    """With a user id of root's in the range, the accounts are this machine's."""
    tree = Tree(tmp_path, Gaps())
    assert check_separation(tree, 0, 63).code is Code.GUEST_USERS_TAKEN
    (tmp_path / "etc" / "libvirt").mkdir(parents=True)
    (tmp_path / "etc" / "libvirt" / "qemu.conf").write_text("dynamic_ownership = 0  # shared storage\n")
    assert check_separation(tree, 0, 63).code is Code.GUEST_OWNERSHIP_OFF
