"""Where a host keeps OVMF, and what the check says without it."""

from __future__ import annotations

from pathlib import Path

from node_agent.checks.finding import Code, Severity
from node_agent.checks.firmware import check_ovmf, find_ovmf


def put(root: Path, *names: str) -> None:
    """Make these files of a host."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def test_a_host_without_ovmf_is_warned_of(tmp_path: Path) -> None:
    assert find_ovmf(tmp_path) is None
    put(tmp_path, "usr/share/OVMF/OVMF_CODE_4M.fd")
    assert find_ovmf(tmp_path) is None, "code without variables"
    finding = check_ovmf(tmp_path)
    assert (finding.code, finding.severity) == (Code.OVMF_ABSENT, Severity.WARNS)
    assert "install the package ovmf" in finding.remedy


def test_the_first_pair_that_is_there_is_taken(tmp_path: Path) -> None:
    put(tmp_path, "usr/share/edk2/ovmf/OVMF_CODE.fd", "usr/share/edk2/ovmf/OVMF_VARS.fd")
    found = find_ovmf(tmp_path)
    assert found is not None
    assert found.code == tmp_path / "usr/share/edk2/ovmf/OVMF_CODE.fd"
    put(tmp_path, "usr/share/OVMF/OVMF_CODE_4M.fd", "usr/share/OVMF/OVMF_VARS_4M.fd")
    assert find_ovmf(tmp_path) != found
    assert check_ovmf(tmp_path).code is None
