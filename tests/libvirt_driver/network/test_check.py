"""Whether the agent may switch IPv6 off on taps and bridges."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node_agent.checks.finding import Code, Severity
from node_agent.checks.networks import IPV6_SETTING, check_tenant_networks
from node_agent.discovery.reading import Gaps, Tree


def test_a_setting_that_can_be_written_is_fine_and_stays(tmp_path: Path) -> None:
    (tmp_path / IPV6_SETTING).parent.mkdir(parents=True)
    (tmp_path / IPV6_SETTING).write_text("0\n")
    assert check_tenant_networks(Tree(tmp_path, Gaps()))[-1].code is None
    assert (tmp_path / IPV6_SETTING).read_text() == "0\n"


def test_a_host_without_ipv6_is_fine(tmp_path: Path) -> None:
    assert check_tenant_networks(Tree(tmp_path, Gaps()))[-1].code is None


def test_a_closed_setting_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path, _flags: int) -> int:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(os, "open", closed)
    finding = check_tenant_networks(Tree(tmp_path, Gaps()))[-1]
    assert (finding.code, finding.severity) == (Code.IPV6_SETTING_CLOSED, Severity.WARNS)
    assert "Read-only file system" in finding.found
