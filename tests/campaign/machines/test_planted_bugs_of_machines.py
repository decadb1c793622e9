"""Each bug planted into what sites do with machines is found by the checks that docs/explanation/campaign.md names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator.sites import tenancies
from tests.campaign.directed.machines.rack import racked
from tests.campaign.directed.machines.scenes import MACHINE_SCENES, Play
from tests.campaign.judging.judging_clients import Violation
from tests.sites.renting.tenancy import ssh_server
from tests.testbuild.planted_bugs import planted

NAMES = [bug for bug, _, _ in MACHINE_SCENES]


def found_by(
    url: str, directory: Path, monkeypatch: pytest.MonkeyPatch, play: Play, bug: str | None
) -> list[Violation]:
    async def whole() -> list[Violation]:
        async with (
            ssh_server(lambda port: monkeypatch.setattr(tenancies, "SSH_PORT", port)) as host_key,
            racked(url, directory) as scene,
        ):
            scene.rent.host_key = host_key
            with planted(bug):
                await play(scene)
            return scene.judge()

    return asyncio.run(whole())


@pytest.mark.parametrize(("bug", "play", "checks"), MACHINE_SCENES, ids=NAMES)
def test_a_bug_of_machines_is_caught(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str, play: Play, checks: tuple[str, ...]
) -> None:
    found = {violation.check for violation in found_by(database_url, tmp_path, monkeypatch, play, bug)}
    assert set(checks) <= found, found


# Long; the quicker test: test_a_bug_of_machines_is_caught.
@pytest.mark.full
@pytest.mark.parametrize(("bug", "play", "checks"), MACHINE_SCENES, ids=NAMES)
def test_without_the_bug_nothing_is_found(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str, play: Play, checks: tuple[str, ...]
) -> None:
    assert [str(one) for one in found_by(database_url, tmp_path, monkeypatch, play, None)] == []
