"""Passwords of BMCs after a restore: one that a BMC got in the lost interval is known again, whatever stopped its rotation."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from berth.cli.deployment.restore.lost_kinds import End, end_of
from berth.local.servers import LocalPostgres
from berth.process.sealed_passwords import Purpose, seal_to_all
from node_agent.wire.sites import BmcTaskKind
from orchestrator.sites.commands.agents import revoke_agent
from orchestrator.sites.commands.bmcs import NewPassword, put_bmc
from orchestrator.sites.store.bmcs import Address
from tests.allocations.driving import ADMIN, rows_of
from tests.allocations.reconciling import admin_operation
from tests.berth.commands import berth
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from tests.restores.publishing import publish
from tests.sites.rotations import FIRST_PASSWORD, USER, Agent, Killed, Machine, Rotations, reopened, rotations

NAMES = ("rotated", "twice", "given", "stored", "begun", "by_hand", "removed", "untouched")


async def nothing() -> None:
    """A step of an agent that goes on."""


async def rotate(stage: Rotations, machine: Machine, *, killed_at: int = 0) -> None:
    """Rotate; the agent dies before its step of this number, if it is given."""
    steps = 0

    async def step() -> None:
        nonlocal steps
        steps += 1
        if steps == killed_at:
            raise Killed

    await machine.request(BmcTaskKind.ROTATE)
    order = await stage.take(stage.first, machine)
    with suppress(Killed):
        assert (await stage.perform(stage.first, machine, order, step)).applied


async def finish(stage: Rotations, agent: Agent, machine: Machine) -> None:
    """The agent goes on with the open task of the machine, and ends it."""
    order = await stage.take(agent, machine)
    assert (await stage.perform(agent, machine, order, nothing)).applied


async def set_by_hand(stage: Rotations, machine: Machine) -> None:
    """An operator has set a password at the BMC, and gives it to Berth."""
    machine.service.machine.passwords[USER] = "set-by-hand"
    keys = {one.id: one.key.public_key().public_bytes_raw() for one in (stage.first, stage.second)}
    keys[stage.site_id] = stage.recovery.public_key().public_bytes_raw()
    sealed = seal_to_all("set-by-hand", Purpose(stage.site_id, machine.node_id, 2), keys)
    address = Address(stage.site_id, "https://192.0.2.7", sha256(b"c").digest(), USER, None)
    await put_bmc(stage.context, admin_operation(), ADMIN, machine.node_id, address, NewPassword(2, sealed))


async def first_steps(stage: Rotations) -> tuple[int, int]:
    """The numbers of the first steps of a rotation after its password is stored, and after the BMC has it."""
    machine, steps, stored, given = await stage.machine(), 0, 0, 0

    async def step() -> None:
        nonlocal steps, stored, given
        steps += 1
        stored = stored or steps * (machine.pending() is not None)
        given = given or steps * (machine.password != FIRST_PASSWORD)

    await machine.request(BmcTaskKind.ROTATE)
    order = await stage.take(stage.first, machine)
    assert (await stage.perform(stage.first, machine, order, step)).applied
    assert 0 < stored < given
    return stored, given


@dataclass(frozen=True)
class Past:
    """The restored database, and the site and machines as they are by now."""

    url: str
    nats_url: str
    stage: Rotations
    machines: dict[str, Machine]

    def berth(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = berth(*arguments, BERTH_DATABASE_URL=self.url, BERTH_NATS_URL=self.nats_url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lost(self) -> set[str]:
        """Machines whose password the recovery key, or the agent that is not revoked, does not open."""

        async def play() -> set[str]:
            async with reopened(self.stage, self.url) as stage:
                keys = ((stage.site_id, stage.recovery), (stage.first.id, stage.first.key))
                return {
                    name
                    for name, one in self.machines.items()
                    if not all(one.password in one.known(recipient, key) for recipient, key in keys)
                }

        return asyncio.run(play())

    def rotated_again(self) -> set[object]:
        """The outcomes of another rotation of each machine over the restored database."""

        async def play() -> set[object]:
            async with reopened(self.stage, self.url) as stage:
                for machine in self.machines.values():
                    await rotate(stage, machine)
                return {outcome for machine in self.machines.values() for outcome in (machine.state()[2],)}

        return asyncio.run(play())


@pytest.fixture
def past(postgres_server: LocalPostgres, database_url: str, nats_url: str) -> Iterator[Past]:
    """A database from before the passwords of all machines but one were rotated, or in the middle of it."""

    async def before() -> tuple[Rotations, dict[str, Machine], tuple[int, int]]:
        async with rotations(database_url) as stage:
            machines = {name: await stage.machine() for name in NAMES}
            steps = await first_steps(stage)
            await rotate(stage, machines["begun"], killed_at=steps[0])
            return stage, machines, steps

    async def after(stage: Rotations, machines: dict[str, Machine], stored: int, given: int) -> None:
        async with reopened(stage, database_url):
            await rotate(stage, machines["rotated"])
            await rotate(stage, machines["twice"])
            await rotate(stage, machines["twice"], killed_at=given)
            await rotate(stage, machines["given"], killed_at=given)
            await rotate(stage, machines["stored"], killed_at=stored)
            await finish(stage, stage.second, machines["begun"])
            await set_by_hand(stage, machines["by_hand"])
            await rotate(stage, machines["removed"])
            await revoke_agent(stage.context, admin_operation(), ADMIN, stage.site_id, stage.second.id, reason="stolen")

    stage, machines, steps = asyncio.run(before())
    publish(database_url, nats_url)
    with copied_database(postgres_server, database_url.rpartition("/")[2]) as url:
        asyncio.run(after(stage, machines, *steps))
        publish(database_url, nats_url)
        yield Past(url, nats_url, stage, machines)


def generations(past: Past) -> dict[str, tuple[object, ...]]:
    """Of each machine the generation of its password, and that of one that it may have received."""
    asked = "select generation, pending_generation from node_bmcs where node_id = %s"
    return {name: row for name, machine in past.machines.items() for row in rows_of(past.url, asked, machine.node_id)}


def test_passwords_of_the_lost_interval_are_known_again(past: Past, tmp_path: Path) -> None:
    assert past.lost() == {"rotated", "twice", "given", "by_hand", "removed"}, (
        "the restored database alone does not know them"
    )
    past.berth("restore", "begin")
    past.berth("restore", "export", "--to", str(tmp_path / "lost"))
    printed = past.berth("restore", "run")
    assert "and 11 passwords of BMCs that were stored in it" in printed
    assert past.lost() == set()
    assert generations(past) == {
        "rotated": (2, None), "twice": (2, 3), "given": (1, 2), "stored": (1, 2), "begun": (2, None),
        "by_hand": (2, None), "removed": (2, None), "untouched": (1, None),
    }  # fmt: skip
    copies = "select count(*) from bmc_credentials where recipient = %s"
    assert rows_of(past.url, copies, past.stage.second.id) == [(0,)], "nothing is sealed to the agent that was revoked"
    left = "select count(*) from bmc_credentials where node_id = %s"
    assert rows_of(past.url, left, past.machines["rotated"].node_id) == [(2,)], "the password of before is deleted"
    noted = (
        "select count(*), count(*) filter (where detail ? 'sealed') from restore_replays where kind = 'bmc_password'"
    )
    assert rows_of(past.url, noted) == [(11, 0)], "what was adopted is not kept a second time"
    assert past.rotated_again() == {"completed"}
    report = [json.loads(line) for line in (tmp_path / "lost/report.ndjson").read_text().splitlines()]
    steps = {line["next_step"] for line in report if line["kind"] == "bmc_password_stored"}
    assert steps == {"`berth restore run` adopts the password, which stays sealed"}
    audited = rows_of(past.url, "select action from audit where principal_id = 'berth restore'")
    assert audited.count(("node.bmc_adopt_password",)) == 11


def test_a_bmc_of_another_site_gets_no_password_of_the_lost_interval(past: Past, tmp_path: Path) -> None:
    moved = past.machines["rotated"].node_id
    rows_of(
        past.url,
        "with other as (insert into sites (name, recovery_key) values ('other', sha256('k')) returning id)"
        " update node_bmcs b set site_id = other.id from other where b.node_id = %s returning 1",
        moved,
    )
    past.berth("restore", "begin")
    past.berth("restore", "export", "--to", str(tmp_path / "lost"))
    assert "and 9 passwords of BMCs" in past.berth("restore", "run")
    assert generations(past)["rotated"] == (1, None)
    report = [json.loads(line) for line in (tmp_path / "lost/report.ndjson").read_text().splitlines()]
    of_moved = [
        line for line in report if line["subject"] == f"nodes/{moved}" and line["kind"] == "bmc_password_stored"
    ]
    assert {(line["replayed"], "berth node bmc set" in line["next_step"]) for line in of_moved} == {(False, True)}


def test_without_an_export_they_are_lost(past: Past) -> None:
    past.berth("restore", "run", "--without-export", NO_NATS)
    assert past.lost() == {"rotated", "twice", "given", "by_hand", "removed"}


def test_a_password_is_named_by_its_event() -> None:
    event = str(uuid.UUID(int=2))
    assert end_of("node.bmc_password_stored", "nodes/x", {}, event) == End("bmc_password", uuid.UUID(event))
