"""A harness of real guests, for tests that need no other one."""

from __future__ import annotations

import pytest

from tests.drivers.libvirt_harness import LibvirtHarness, usable


@pytest.fixture
def harness() -> LibvirtHarness:
    """Guests of QEMU, on the libvirtd of the run."""
    return usable(LibvirtHarness())
