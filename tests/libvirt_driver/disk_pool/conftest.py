"""Fixtures of tests that need no LVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.libvirt_driver.disk_pool.fake_lvm import FakeLvm


@pytest.fixture
def lvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLvm:
    """Stand-ins of LVM's programs."""
    return FakeLvm(tmp_path / "programs", monkeypatch)
