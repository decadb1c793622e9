"""One process at a time holds the lease of a site, whatever asks at the same time (P7)."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from node_agent.wire.sites import BmcTaskKind, LeaseRequest
from orchestrator.sites.commands.leases import Held, lease_bmc_tasks, take_site_lease
from tests.sites.rotations import Agent, Rotations, rotations


async def ask(stage: Rotations, agent: Agent, run_id: uuid.UUID, *, release: bool = False) -> Held:
    key = agent.key.public_key().public_bytes_raw().hex()
    wanted = LeaseRequest(run_id=run_id, agent_version="1", sealing_key=key, release=release)
    return await take_site_lease(stage.context, agent.id, wanted, 20.0, "r")


def test_one_of_many_processes_gets_a_free_lease_and_copies_of_it_get_nothing(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            machine = await stage.machine()
            await machine.request(BmcTaskKind.LOOK)
            processes = [(agent, uuid.uuid4()) for agent in (stage.first, stage.second) for _ in range(4)]
            answers = await asyncio.gather(*(ask(stage, *process) for process in processes))
            assert sorted(one.held for one in answers) == [False] * 7 + [True]
            (holder,) = (process for process, one in zip(processes, answers, strict=True) if one.held)
            again = await asyncio.gather(*(ask(stage, *process) for process in processes))
            assert [one.held for one in again] == [one.held for one in answers], "it stays with the one that has it"
            assert {one.fence for one in again} == {1}
            for agent, run_id in processes:
                leased = await lease_bmc_tasks(stage.context, agent.id, agent.serial, run_id, 1, [], 9)
                assert (leased is None) is ((agent, run_id) != holder)
            for process in processes:
                if process != holder:
                    await ask(stage, *process, release=True)
            assert (await ask(stage, *holder)).held, "its holder alone gives it up"
            await ask(stage, *holder, release=True)
            after = await ask(stage, *holder)
            assert (after.held, after.fence) == (True, 2), "what was given up is taken under another fence"

    asyncio.run(scene())


def test_a_late_report_counts_while_no_other_process_took_the_lease(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            for successor in (None, stage.second):
                machine = await stage.machine()
                await machine.request(BmcTaskKind.LOOK)
                order = await stage.take(stage.first, machine)

                async def step(successor: Agent | None = successor) -> None:
                    stage.expire()
                    if successor is not None:
                        await ask(stage, successor, successor.run_id)

                answer = await stage.perform(stage.first, machine, order, step)
                assert (answer.applied, answer.reason) == ((True, None) if successor is None else (False, "lease_lost"))
                assert machine.state()[2] == ("completed" if successor is None else None)

    asyncio.run(scene())


@pytest.mark.parametrize("kind", [BmcTaskKind.ROTATE, BmcTaskKind.RESEAL])
def test_a_password_is_not_stored_for_a_key_that_its_recipient_no_longer_has(
    database_url: str, kind: BmcTaskKind
) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            machine = await stage.machine()
            await machine.request(kind)
            order = await stage.take(stage.first, machine)
            stage.fleet.connection.execute(
                "update site_agents set epoch = 2, sealing_key = sha256('new'), sealing_key_epoch = 2 where id = %s",
                (stage.second.id,),
            )

            async def step() -> None:
                """Go on."""

            assert (await stage.perform(stage.first, machine, order, step)).applied
            assert machine.state() == (1, None, "failed")
            assert str(stage.fleet.one("select failure from bmc_tasks")).startswith("password_refused: ")
            assert machine.service.requests == [], "the BMC was not reached"

    asyncio.run(scene())


def test_an_agent_without_a_copy_opens_nothing_until_another_one_reseals(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            machine = await stage.machine()
            stage.fleet.connection.execute("delete from bmc_credentials where recipient = %s", (stage.second.id,))

            async def step() -> None:
                """Go on."""

            async def outcome(agent: Agent, kind: BmcTaskKind) -> object:
                await machine.request(kind)
                assert (await stage.perform(agent, machine, await stage.take(agent, machine), step)).applied
                return machine.state()[2]

            assert await outcome(stage.second, BmcTaskKind.LOOK) == "failed"
            assert str(stage.fleet.one("select failure from bmc_tasks")).startswith("not_sealed: ")
            assert await outcome(stage.first, BmcTaskKind.RESEAL) == "completed"
            assert machine.service.requests == [], "neither reached the BMC"
            assert await outcome(stage.second, BmcTaskKind.LOOK) == "completed"

    asyncio.run(scene())
