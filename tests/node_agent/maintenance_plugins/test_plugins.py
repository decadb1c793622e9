"""A plugin has a deadline, and one that declared a reboot is not reported as completed before it."""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path

from node_agent.maintenance.plugins import MARGIN_SECONDS, MaintenancePlugins
from node_agent.wire.maintenance import MaintenancePluginParameters, MaintenancePluginReport

ORDER = MaintenancePluginParameters(plugin="firmware", slots=[0])


def ran(tmp_path: Path, text: str, seconds: float) -> MaintenancePluginReport:
    plugin = tmp_path / "firmware"
    plugin.write_text(f"#!{sys.executable}\n{text}\n")
    plugin.chmod(0o755)
    plugins = MaintenancePlugins(tmp_path, tmp_path / "notes")
    return asyncio.run(plugins.run(uuid.uuid4(), ORDER, seconds + MARGIN_SECONDS, occupied=False))


def test_a_plugin_that_does_not_end_is_ended(tmp_path: Path) -> None:
    report = ran(tmp_path, "import signal\nsignal.pause()", 0.3)
    assert report.outcome == "failed"
    assert report.evidence.startswith("no answer within 0.")


def test_a_declared_reboot_that_does_not_come_is_a_failure(tmp_path: Path) -> None:
    declared = 'import os\nopen(os.environ["MAINTENANCE_REBOOT_FILE"], "w").write("staged")\nprint(\'{"outcome": "completed"}\')'
    report = ran(tmp_path, declared, 1.0)
    assert (report.outcome, report.evidence) == (
        "failed", "the plugin declared a reboot, and the node did not reboot in time",
    )  # fmt: skip


def test_notes_of_earlier_tasks_are_removed(tmp_path: Path) -> None:
    for _ in range(2):
        assert ran(tmp_path, 'print(\'{"outcome": "completed"}\')', 30.0).outcome == "completed"
    assert len(list((tmp_path / "notes").iterdir())) == 1
