"""Any course of a release: whatever fails in between, nothing but a proven wipe after an inspection frees the units."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from berth.local.servers import LocalPostgres
from orchestrator.allocations.commands.force import force_release
from orchestrator.nodes.deploy_systems.run_rules import Move
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.databases import copied_database
from tests.sites.adopting.machines import Adopting, adopting

STEPS = st.lists(st.sampled_from(["fails", "done", "unproven", "released again"]), max_size=6)
OPEN = "select kind from deploy_runs where ended_at is null"
INSPECTED = "select count(*) from deploy_runs where kind = 'inspect' and outcome = 'completed' and allocation_id = %s"


async def step(rent: Adopting, what: str, attempt: int) -> int:
    """What happens next in the course of the release; the number of its attempt."""
    found = rent.run.row(OPEN)
    if what == "released again" or found is None:
        await force_release(rent.run.stage.context, admin_operation(), ADMIN, rent.allocation, "again")
        attempt += 1
        await rent.clean_up(f"releasing-{attempt}")
    elif what == "fails":
        await rent.run.report(rent.run.boot(), failure={"code": "internal_error", "detail": "x"})
    elif found == ("inspect",):
        await rent.inspect()
    elif what == "unproven":
        await rent.run.report(rent.run.boot(), failure={"code": "wipe_not_proven", "detail": "x"})
    else:
        await rent.wipe()
    await rent.steps()
    return attempt


async def course(url: str, directory: Path, steps: list[str]) -> None:
    async with adopting(url, directory) as rent:
        await rent.adopt()
        await rent.release()
        await rent.clean_up()
        assert await rent.steps() is Move.WORK
        attempt = 1
        for what in steps:
            wiping = rent.run.row(OPEN) == ("wipe",)
            attempt = await step(rent, what, attempt)
            assert rent.run.row(OPEN) != ("wipe",) or rent.run.row(INSPECTED, rent.allocation)[0] >= 1
            proven = rent.run.row("select count(*) from deploy_runs where kind = 'wipe' and outcome = 'completed'")[0]
            assert proven == (wiping and what == "done")
            if proven:
                await rent.cleaned_up(f"releasing-{attempt}")
                assert (rent.row["state"], rent.claim["occupied"]) == ("released", False)
                return
            assert rent.claim["occupied"]


def test_only_a_proven_wipe_after_an_inspection_frees_the_units(
    postgres_server: LocalPostgres, migrated_template: str
) -> None:
    courses: list[list[str]] = []

    @settings(max_examples=8, deadline=None)
    @given(STEPS)
    def any_course(steps: list[str]) -> None:
        with copied_database(postgres_server, migrated_template) as url, tempfile.TemporaryDirectory() as directory:
            asyncio.run(course(url, Path(directory), steps))
        courses.append(steps)

    any_course()
    assert courses, "at least one course was played"
