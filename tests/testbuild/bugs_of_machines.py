"""Bugs planted into what sites do with their machines."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.testbuild.planting import replace


def believe_every_wipe() -> None:
    """A disk counts as wiped whatever was read from it."""
    from node_agent.wire.deploy_tasks import MetalDiskWipe

    replace(MetalDiskWipe, "proven", True)


def send_without_the_lease() -> None:
    """An agent of a site sends on after its lease."""
    from node_agent.site.lease import Lease

    replace(Lease, "require", lambda self, fence: None)


def change_passwords_unstored() -> None:
    """A new password goes to the BMC without being stored first."""
    from berth.process.sealed_passwords import new_password
    from node_agent.site.effects import BmcEffects

    async def stored_new(self: Any, order: Any, generation: int) -> tuple[int, str]:
        return generation, new_password()

    replace(BmcEffects, "_stored_new", stored_new)


def leave_failed_machines_on() -> None:
    """A run that fails is closed without the end of its deploy system."""
    from orchestrator.nodes.deploy_systems.run_rules import Move, Next, next_move
    from orchestrator.sites.commands import runs

    def closed(standing: Any) -> Next | None:
        found = next_move(standing)
        is_undoing = found is not None and found.move is Move.END and found.failure is not None
        return Next(Move.CLOSE, found.failure) if is_undoing and found is not None else found

    replace(runs, "next_move", closed)


def wait_for_steps_forever() -> None:
    """No step of a run has a deadline."""
    from orchestrator.nodes.deploy_systems.run_rules import Next, next_move
    from orchestrator.sites.commands import runs

    def patient(standing: Any) -> Next | None:
        return next_move(dataclasses.replace(standing, is_overdue=False))

    replace(runs, "next_move", patient)


MACHINE_BUGS = {
    "wipe_not_read_back": believe_every_wipe,
    "lease_not_required": send_without_the_lease,
    "password_not_stored": change_passwords_unstored,
    "failed_run_not_undone": leave_failed_machines_on,
    "step_without_deadline": wait_for_steps_forever,
}
