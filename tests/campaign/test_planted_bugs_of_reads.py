"""Each planted bug of the key-value store, the feed and the sockets is found by its checks, and only with the bug."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.campaign.directed.live_scenes import LIVE_SCENES, Play, apis_of
from tests.campaign.directed.serving import live_scene

IDS = [bug for bug, _, _ in LIVE_SCENES]


def found_in(database_url: str, directory: Path, bug: str | None, play: Play) -> list[str]:
    with live_scene(database_url, directory, bug, apis_of(play)) as scene:
        asyncio.run(play(scene))
        return [str(violation) for violation in scene.judge()]


@pytest.mark.quick(
    "reads_from_cache",
    "feed_skips_at_page_boundary",
    "truncation_unnoticed",
    "socket_resumes_too_far",
    "commits_not_remembered",
    "feed_of_every_tenant",
)
@pytest.mark.parametrize(("bug", "play", "checks"), LIVE_SCENES, ids=IDS)
def test_a_bug_of_reads_is_caught(
    database_url: str, tmp_path: Path, bug: str, play: Play, checks: tuple[str, ...]
) -> None:
    found = found_in(database_url, tmp_path, bug, play)
    assert {check for check in checks if any(one.startswith(f"{check}: ") for one in found)} == set(checks), found


# Long; the quicker test: test_a_bug_of_reads_is_caught.
@pytest.mark.full
@pytest.mark.parametrize(("bug", "play", "checks"), LIVE_SCENES, ids=IDS)
def test_without_the_bug_nothing_is_found(
    database_url: str, tmp_path: Path, bug: str, play: Play, checks: tuple[str, ...]
) -> None:
    assert found_in(database_url, tmp_path, None, play) == []
