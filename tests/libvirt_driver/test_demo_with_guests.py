"""`berth demo --guest-image`: a whole stack whose allocations are virtual machines."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.drivers.libvirt_harness import IMAGE_VARIABLE, LibvirtHarness, usable

ROOT = Path(__file__).parents[2]


# A minute and a half of two processors. Quicker tests cover its parts: tests/drivers, tests/berth/test_demo.py.
@pytest.mark.full
@pytest.mark.hardware
@pytest.mark.timeout(900)
def test_the_demo_on_guests_holds_what_it_claims(tmp_path: Path) -> None:
    usable(LibvirtHarness())
    command = [
        ROOT / ".venv" / "bin" / "berth", "demo", "--state-dir", tmp_path / "demo", "--output", "json",
        "--guest-image", os.environ[IMAGE_VARIABLE], "--guest-dir", "/var/tmp/berth-test-guests/demo",
    ]  # fmt: skip
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["held"]
    assert [act["act"] for act in report["acts"]] == ["a", "c", "e"]
    assert report["acts"][1]["placed"] == report["acts"][1]["capacity"] == 8
