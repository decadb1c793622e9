"""The campaign itself, short and longer: nothing that was promised is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.casting import CampaignOptions
from tests.campaign.running import run_campaign


def keeps_everything(directory: Path, seconds: float, seed: int, **options: float) -> list[str]:
    """The faults that could not be undone, in a campaign that met enough of them and broke no promise."""
    report, history = run_campaign(CampaignOptions(directory / "campaign", seconds, seed, **options))  # type: ignore[arg-type]
    shown = "\n".join(report.lines())
    history.write(directory / "campaign.history.jsonl")
    assert report.kept, shown
    assert sum(report.faults.values()) > seconds / 10, shown
    assert report.allocations.get("released", 0) > 5, shown
    assert any(recovery.seconds is not None for recovery in report.recoveries), shown
    assert report.operations["commit"].get("done", 0) > 5, shown
    assert report.key_reads > 5, shown
    assert report.received > report.events, shown
    return report.faults_undone


# Takes a minute. In `make test` tests/whole/test_trouble.py kills each process and server once, and the judges run on
# planted bugs and directed cases.
@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_short_campaign(server_directory: Path) -> None:
    # A seed that kills two servers, a process and an agent, and has twelve sorts of faults in half a minute.
    assert keeps_everything(server_directory, 30, seed=33610, fault_every_seconds=2.0) == []


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_longer_campaign(server_directory: Path, seed: int) -> None:
    assert keeps_everything(server_directory / f"seed-{seed}", 180, seed, fault_every_seconds=1.8) == []
