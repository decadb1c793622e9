"""An adopted machine is metered, charged, kept after a restore and archived as every allocation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from berth.cli.deployment.archive.chains import find_allocation
from berth.cli.deployment.archive.directory import Directory
from berth.cli.deployment.archive.running import Retention, run_archive
from migrations.roles import Role
from tests.allocations.seeding import PRICE, SLOTS
from tests.archive.ended import archived_in, left_of, violations
from tests.consumers.metered import meter_all
from tests.databases import as_role
from tests.sites.adopting.machines import Adopting, Scene


def test_it_is_metered_from_its_adoption_to_its_release_and_archived(
    play: Callable[[Scene], None], tmp_path: Path
) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.release_to("work")
        await rent.inspected_and_wiped()
        await rent.cleaned_up()
        row = rent.row
        (line,) = await asyncio.to_thread(meter_all, rent.url)
        assert line[:4] == (str(rent.allocation), str(rent.seeded.tenant_id), SLOTS, row["price_version"])
        assert (line[4], line[5], line[6]) == (PRICE, row["active_at"], row["releasing_at"])
        assert violations(rent.url) == {}
        archive = Directory(tmp_path / "archive")
        done = run_archive(as_role(rent.url, Role.OPERATOR), archive, Retention(0))
        assert (done.deleted, archived_in(rent.url), left_of(rent.url, rent.allocation)) == (
            1,
            {rent.allocation: 1},
            [],
        )
        found = find_allocation(archive, str(rent.allocation))
        assert found is not None
        assert found["rows"]["allocations"][0]["adoption"]["gaps"] == row["adoption"]["gaps"]
        assert violations(rent.url) == {}

    play(scene)


def test_after_a_restore_that_knows_it_the_machine_is_kept(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        rent.restore()
        connection = rent.run.stage.fleet.connection
        connection.execute("update nodes set online = true where id = %s", (rent.run.node,))
        connection.execute("update node_bmcs set answered_at = clock_timestamp()")
        assert rent.run.row("select restore_keep_node(%s, %s)", rent.run.node, rent.allocation) == ("kept",)
        await rent.release_to("work")
        await rent.inspected_and_wiped()
        await rent.cleaned_up()
        assert rent.row["state"] == "released"

    play(scene)
