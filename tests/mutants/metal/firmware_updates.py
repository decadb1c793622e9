"""Mutants of updates of firmware: sent once by one process, proven by the version read back, otherwise out of service."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_AGENT = "node_agent/site/updates.py"
_IMAGES = "node_agent/site/images.py"
_CLIENT = "node_agent/redfish/updates.py"
_RULES = "orchestrator/sites/updating/rules.py"
_WINDOWS = "orchestrator/maintenance/window_tasks.py"
_COMMANDS = "orchestrator/sites/commands/firmware_updates.py"
_OF_CLIENT = "tests/redfish/test_updates.py"
_UPDATED = "tests/sites/updates/test_updates.py::test_firmware_is_updated_and_the_units_return"
_PROVEN = "tests/sites/updates/test_updates.py::test_only_the_version_read_back_completes_it"
_TAKEN_OVER = "tests/sites/updates/test_takeovers.py"
_REFUSED = "tests/sites/updates/test_refusals.py"
_NOT_SENT = f"{_REFUSED}::test_what_is_not_the_image_or_not_the_target_is_not_sent"
_STATES = "tests/sites/updates/test_states.py"
_KEPT_OUT = f"{_STATES}::test_what_may_have_been_sent_and_is_not_proven_keeps_the_machine_out_of_service"
_COMPARED = f"{_STATES}::test_the_next_release_compares_with_what_the_update_made_and_with_nothing_else"


def _mutant(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"firmware updates: {what}", "nodes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "ports are moved before its verdict", "orchestrator/sites/ports/commands.py",
        "    await require_no_update(tx, node_id)\n", "",
        f"{_REFUSED}::test_nothing_else_uses_the_bmc_while_a_window_updates_the_machine",
    ),
    _mutant(
        "an update whose task is gone was not sent", _RULES, "    if ended.outcome is None:\n", "    if False:\n", _KEPT_OUT,
    ),
    _mutant(
        "an agent that goes on sends again", _AGENT, "return stored.sender == self._sender and not self._sent", "return True",
        f"{_TAKEN_OVER}::test_an_agent_that_dies_at_any_step_is_followed_by_one_that_sends_nothing_again",
    ),
    _mutant(
        "the last sender counts", "orchestrator/sites/commands/reports.py",
        "        if known is None:\n            known = body.progress\n",
        "        if known is None or body.progress.sender != known.sender:\n            known = body.progress\n",
        f"{_REFUSED}::test_the_first_process_that_stores_its_progress_sends_the_update_and_no_other",
    ),
    _mutant(
        "progress is stored without the lease", "orchestrator/sites/commands/reports.py",
        " or task.fence != body.fence or not locked.leased:", " or task.fence != body.fence:",
        f"{_REFUSED}::test_the_first_process_that_stores_its_progress_sends_the_update_and_no_other",
    ),
    _mutant(
        "an answer that was lost is asked for again", _AGENT, "            return None, unknown\n",
        "            begun = await bmc.begin_update(url, targets)\n", _PROVEN,
    ),
    _mutant(
        "success is believed", _AGENT,
        "        if {item.id for item in items if item.version == self._order.version} != set(ids):\n", "        if False:\n",
        _PROVEN,
    ),
    _mutant(
        "the control plane does not compare the versions", _RULES,
        "        if any(read.get(target) != ended.order.version for target in ended.order.targets):\n", "        if False:\n",
        _KEPT_OUT,
    ),
    _mutant(
        "what nothing was to send keeps the machine out", _RULES, "    if ended.progress is None:\n        return False\n",
        "    if ended.progress is None:\n        return True\n",
        f"{_REFUSED}::test_an_update_that_no_agent_performs_ends_by_its_deadline",
    ),
    _mutant(
        "an agent that did not send speaks for the one that did", _RULES,
        "    return result is None or result.sent or result.sender != ended.progress.sender\n",
        "    return result is None or result.sent\n", _KEPT_OUT,
    ),
    _mutant(
        "a machine is restarted in the middle of an update", _AGENT,
        "        if unknown is None:\n            await self._restart(bmc, needs, stored)\n",
        "        await self._restart(bmc, needs, stored)\n",
        f"{_TAKEN_OVER}::test_an_agent_that_goes_on_restarts_nothing_while_the_task_is_not_known",
    ),
    _mutant("any image is served", _IMAGES, "        if digest.hexdigest() != order.sha256:\n", "        if False:\n", _NOT_SENT),
    _mutant(
        "an image has no bound", _IMAGES, "                    if size > self._bytes_max:\n", "                    if False:\n",
        f"{_REFUSED}::test_an_image_larger_than_the_bound_is_not_fetched_to_its_end",
    ),
    _mutant(
        "the image is served on", _IMAGES, "                self._media.withdraw_image(url)\n", "                pass\n", _UPDATED
    ),
    _mutant(
        "the BMC is sent to the vendor", _AGENT, "begun = await bmc.begin_update(url, targets)",
        "begun = await bmc.begin_update(self._order.image_url, targets)", _UPDATED,
    ),
    _mutant(
        "the BMC chooses the target", _CLIENT, "tuple(target.path for target in targets)", "()",
        f"{_OF_CLIENT}::test_the_task_says_what_must_be_reset",
    ),
    _mutant(
        "logins are tried until the account is locked", _CLIENT, "LOGINS_REFUSED_MAX: Final = 2", "LOGINS_REFUSED_MAX: Final = 5",
        f"{_OF_CLIENT}::test_refused_logins_are_bounded",
    ),
    _mutant(
        "another certificate is waited for", _CLIENT, "        except CertificateChanged:\n            raise\n", "",
        f"{_OF_CLIENT}::test_another_certificate_during_the_update_gets_no_credentials",
    ),
    _mutant(
        "a machine that was off stays on", _AGENT,
        "        if stored.power_state == PowerState.OFF and \"host\" in self.result.restarted:\n", "        if False:\n",
        f"{_TAKEN_OVER}::test_a_machine_that_was_off_is_off_again_after_the_restart_that_its_update_needs",
    ),
    _mutant(
        "an update is sent whose end would not be seen", _AGENT, "            if self._seconds_left() < SENDING_SECONDS_MIN:\n",
        "            if False:\n", _NOT_SENT,
    ),
    _mutant(
        "the next release compares with the versions of before", _COMMANDS,
        "        await note_updated(tx, node_id, ended.result)\n", "        pass\n",
        "tests/sites/renting/test_firmware.py::test_a_release_compares_with_what_a_proven_update_has_made",
    ),
    _mutant(
        "a BIOS that the update changed is objected to", _RULES,
        "    bios = after.bios if before.bios and after.bios and before.bios != after.bios else None\n", "    bios = None\n",
        _COMPARED,
    ),
    _mutant(
        "an update begins beside a run", _COMMANDS, "        or await run_store.is_open(tx, node_id)\n", "",
        f"{_REFUSED}::test_an_update_waits_for_what_works_through_the_bmc_and_is_not_made_when_that_lasts",
    ),
    _mutant(
        "another task of the BMC begins before the verdict", "orchestrator/sites/commands/bmcs.py",
        "        await require_no_update(tx, node_id)\n        task = await bmc_tasks.lock_open(tx, node_id)\n",
        "        task = await bmc_tasks.lock_open(tx, node_id)\n",
        f"{_REFUSED}::test_nothing_else_uses_the_bmc_while_a_window_updates_the_machine",
    ),
    _mutant(
        "an update restarts a node under other slots", _WINDOWS, "frozenset({TaskKind.PLUGIN, TaskKind.FIRMWARE})",
        "frozenset({TaskKind.PLUGIN})", f"{_REFUSED}::test_a_window_is_refused_for_nodes_whose_firmware_it_cannot_update",
    ),
    _mutant(
        "a version that the list refuses is written", _WINDOWS,
        "        if naming and not any(order.version in versions for versions in naming):\n", "        if False:\n",
        f"{_REFUSED}::test_a_window_is_refused_for_nodes_whose_firmware_it_cannot_update",
    ),
    _mutant(
        "the agent of the node gets the task", "orchestrator/nodes/store/maintenance_tasks.py",
        "where m.ended_at is null and m.kind <> 'firmware' and m.begins_at", "where m.ended_at is null and m.begins_at", _UPDATED,
    ),
]  # fmt: skip
