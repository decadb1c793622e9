"""The checks of the suite, each on one node with a real agent. A check raises `Breach`, or returns: the driver conforms."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from itertools import groupby

from node_agent.protocol import FailureCode
from node_agent.wiping.statement import StatementEnvelope, open_statement
from tests.drivers.harness import must
from tests.drivers.seams import BETWEEN, Strike
from tests.drivers.stage import EffectName, Ended, Stage

SLOT = [1]


async def brings_up_and_takes_down(stage: Stage) -> None:
    """A provision ends usable, phases in order; a release leaves nothing, phases in order, with proof per device."""
    up = await stage.provision([0, 1])
    await stage.must_be_usable(up, [0, 1], "after the provision")
    must(up.phases == stage.harness.provision_phases, f"the phases of a provision are {up.phases}")
    await stage.must_report_reality("after the provision")
    down = await stage.release(up.allocation_id, [0, 1])
    must_prove(up, down)
    must(down.phases == stage.harness.release_phases, f"the phases of a release are {down.phases}")
    await stage.must_be_empty("after the release")
    must(not await stage.probe.answers(up.connection, up.allocation_id), "the guest answers after its release")


def must_prove(up: Ended, down: Ended) -> None:
    """The release claims everything, proves each device that the provision named, and signs just that."""
    must(down.report.outcome == "completed", f"the release ends with {down.report.failure}")
    result = down.released
    must(result.released and result.wiped and result.leases_released, f"the release claims {result}")
    assert up.report.result is not None
    had = set(up.report.result["evidence"].get("devices", []))
    proofs = result.evidence.get("devices", [])
    must(had, "the provision names no device")
    must(had == {proof["device"] for proof in proofs}, f"the allocation had {had}; proven are {proofs}")
    for proof in proofs:
        must(proof["proven"] and proof["checked"], f"the proof {proof} says nothing of what was looked at")
    must(result.wipe_statement is not None, "the release has no wipe statement")
    stated = open_statement(StatementEnvelope.model_validate(result.wipe_statement)).predicate
    must(stated.allocation_id == up.allocation_id, f"the statement is about {stated.allocation_id}")
    must([device.model_dump(mode="json") for device in stated.devices] == proofs, "the statement names other proofs")


async def leaves_nothing_of_a_tenant(stage: Stage) -> None:
    """What a tenant sends and leaves behind is found before the release, and nowhere after it."""
    sent, left = (f"marker-{uuid.uuid4().hex}" for _ in range(2))
    up = await stage.provision(SLOT, user_data=f"#!/bin/sh\necho {sent}\n")
    await stage.must_be_usable(up, SLOT, "after the provision")
    await stage.probe.plant(up.connection, left)
    must(await stage.probe.remains(up.connection, left), "what the tenant wrote is not there")
    for marker in (sent, left):
        must(stage.probe.traces(marker), "the probe does not find what the tenant sent or left")
    must_prove(up, await stage.release(up.allocation_id, SLOT))
    for marker in (sent, left):
        must(not stage.probe.traces(marker), f"after the release a tenant's data are in {stage.probe.traces(marker)}")


async def releases_what_never_existed(stage: Stage) -> None:
    """It is a success that proves no device."""
    down = await stage.release(uuid.uuid4(), SLOT)
    must(down.report.outcome == "completed", f"the release ends with {down.report.failure}")
    must(down.released.released, "it is not called released")
    must(not down.released.evidence.get("devices"), "it claims to have wiped a device")
    must(down.released.evidence.get("was_there") is False, "it does not say that nothing was there")
    await stage.must_be_empty("after it")


async def gives_a_slot_once(stage: Stage) -> None:
    """Of two tasks for one slot one succeeds, at most; the other fails as conflict or interrupted. A third one waits its turn."""
    tasks = [await stage.begin_provision(SLOT) for _ in range(2)]
    both = await asyncio.gather(*(stage.ended(*task) for task in tasks))
    won = [ended for ended in both if ended.report.outcome == "completed"]
    must(len(won) == 1, f"{len(won)} of two provisions of one slot succeed")
    failure = next(ended.report.failure for ended in both if ended not in won)
    conflicts = (FailureCode.LEASE_CONFLICT, FailureCode.INTERRUPTED)
    must(failure is not None and failure.code in conflicts, f"the other one fails with {failure}")
    await stage.must_be_usable(won[0], SLOT, "after a race")
    third = await stage.provision(SLOT)
    must(third.report.failure and third.report.failure.code is FailureCode.LEASE_CONFLICT, f"a third: {third.report}")
    await stage.must_be_usable(won[0], SLOT, "after the conflict")
    must(stage.probe.there() == {won[0].allocation_id}, "the loser left something")
    await stage.must_report_reality("after the conflict")


async def keeps_guests_until_the_host_goes_down(stage: Stage) -> None:
    """An agent's stop and start have no effect on a guest. `--end-guests` ends it, and the next agent starts it."""
    up = await stage.provision(SLOT)
    await stage.must_be_usable(up, SLOT, "after the provision")
    before = stage.probe.processes()
    must(await stage.agent.end_guests() != 0, "guests are ended while an agent runs, which starts them again")
    must(await stage.agent.stop() == 0, "the agent does not stop")
    must(stage.probe.processes() == before, f"the agent's stop leaves {stage.probe.processes()} of {before}")
    must(await stage.probe.answers(up.connection, up.allocation_id), "the guest does not answer without its agent")
    await stage.restart()
    must(stage.probe.processes() == before, f"a restarted agent has {stage.probe.processes()}, not {before}")
    await stage.must_report_reality("after a restart of the agent")
    must(await stage.agent.stop() == 0, "the agent does not stop")
    must(await stage.agent.end_guests() == 0, "the guests cannot be ended")
    must(not stage.probe.processes(), f"{stage.probe.processes()} go on when the host goes down")
    must(up.allocation_id in stage.probe.files(), "the host's shutdown loses the guest's files")
    await stage.restart()
    await stage.must_be_usable(up, SLOT, "after the host's shutdown and start")


async def survives_kills_of_a_provision(stage: Stage, every_effect: bool = False) -> None:
    """SIGKILL in and after each phase: the next agent undoes the provision and reports it as interrupted."""
    places = await _places_of_a_provision(stage, every_effect)
    for phase, effect in places:
        when = f"killed at effect {effect} of phase {stage.harness.provision_phases[phase]}"
        stage.arm(Strike(phase, effect, "kill"))
        allocation, task = await stage.begin_provision(SLOT)
        await stage.struck()
        await stage.restart()
        ended = await stage.ended(allocation, task)
        failure = ended.report.failure
        must(failure is not None and failure.code is FailureCode.INTERRUPTED, f"{when} it ends with {ended.report}")
        assert failure is not None
        must("could not be removed" not in failure.detail, f"{when}: {failure.detail}")
        await stage.must_be_empty(when)
    up = await stage.provision(SLOT)
    await stage.must_be_usable(up, SLOT, "after all kills")


async def survives_kills_of_a_release(stage: Stage, every_effect: bool = False) -> None:
    """SIGKILL in and after each phase: the next agent releases again from the start, and proves the same."""
    up = await stage.provision(SLOT)
    stage.effects()
    must_prove(up, await stage.release(up.allocation_id, SLOT))
    for phase, effect in _chosen(stage.effects(), len(stage.harness.release_phases), every_effect):
        when = f"killed at effect {effect} of phase {stage.harness.release_phases[phase]}"
        up = await stage.provision(SLOT)
        await stage.must_be_usable(up, SLOT, "before a kill")
        stage.arm(Strike(phase, effect, "kill"))
        task = await stage.begin_release(up.allocation_id, SLOT)
        await stage.struck()
        await stage.restart()
        down = await stage.ended(up.allocation_id, task)
        must(down.report.outcome == "completed", f"{when} it ends with {down.report.failure}")
        must_prove(up, down)
        await stage.must_be_empty(when)


async def withstands_a_full_disk(stage: Stage, every_effect: bool = False) -> None:
    """The disk fills in each phase of a provision: it succeeds or fails with a code and that reason, and leaves nothing."""
    for phase, effect in await _places_of_a_provision(stage, every_effect):
        when = f"with the disk filled at effect {effect} of phase {stage.harness.provision_phases[phase]}"
        if effect != BETWEEN:
            await stage.restart()  # what a process starts only once is an effect of its first provision
        stage.arm(Strike(phase, effect, "fill"))
        up = await stage.provision(SLOT)
        must(not stage.armed(), f"{when}: the disk was not filled")
        failure = up.report.failure
        if failure is None:
            await stage.must_be_usable(up, SLOT, when)
            must_prove(up, await stage.release(up.allocation_id, SLOT))
        else:
            must("No space left" in failure.detail, f"{when} it fails with {failure}")
            must("could not be removed" not in failure.detail, f"{when}: {failure.detail}")
        await stage.must_be_empty(when)
        stage.free_disk()
    await _releases_with_a_full_disk(stage, every_effect)


async def _releases_with_a_full_disk(stage: Stage, every_effect: bool) -> None:
    up = await stage.provision(SLOT)
    stage.effects()
    must_prove(up, await stage.release(up.allocation_id, SLOT))
    for phase, effect in _chosen(stage.effects(), len(stage.harness.release_phases), every_effect):
        when = f"with the disk filled at effect {effect} of phase {stage.harness.release_phases[phase]}"
        up = await stage.provision(SLOT)
        await stage.must_be_usable(up, SLOT, "before the disk is filled")
        stage.arm(Strike(phase, effect, "fill"))
        must_prove(up, await stage.release(up.allocation_id, SLOT))
        must(not stage.armed(), f"{when}: the disk was not filled")
        await stage.must_be_empty(when)
        stage.free_disk()


async def _places_of_a_provision(stage: Stage, every_effect: bool) -> list[tuple[int, EffectName]]:
    stage.effects()
    up = await stage.provision(SLOT)
    effects = stage.effects()
    await stage.must_be_usable(up, SLOT, "before any fault")
    await stage.release(up.allocation_id, SLOT)
    return _chosen(effects, len(stage.harness.provision_phases), every_effect)


def _chosen(effects: Iterable[tuple[int, EffectName]], phases: int, every_effect: bool) -> list[tuple[int, EffectName]]:
    """Of each phase its end and an effect in it, or every effect. Raises Breach if a phase has no effect."""
    by_phase = {phase: [effect for _, effect in group] for phase, group in groupby(effects, lambda one: one[0])}
    must(sorted(by_phase) == list(range(phases)), f"of {phases} phases, effects were seen in {sorted(by_phase)}")
    chosen: list[tuple[int, EffectName]] = []
    for phase, seen in by_phase.items():
        inside = [effect for effect in seen if effect != BETWEEN]
        must(inside, f"phase {phase} has no effect")
        chosen += [(phase, effect) for effect in (inside if every_effect else inside[-1:])]
        chosen.append((phase, BETWEEN))
    return chosen


CHECKS = (
    brings_up_and_takes_down,
    leaves_nothing_of_a_tenant,
    releases_what_never_existed,
    gives_a_slot_once,
    keeps_guests_until_the_host_goes_down,
    survives_kills_of_a_provision,
    survives_kills_of_a_release,
    withstands_a_full_disk,
)
