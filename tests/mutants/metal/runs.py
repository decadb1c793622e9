"""Mutants of runs that wipe a machine, and of those that perform the tasks of allocations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ORDERS = "orchestrator/nodes/deploy_systems/wipe_orders.py"
_RUNS = "orchestrator/sites/commands/runs.py"
_BOOTS = "orchestrator/sites/boots.py"
_TESTS = "tests/sites/test_wipes.py"
_REFUSED = f"{_TESTS}::test_a_wipe_is_refused_unless_the_inspection_names_everything"
_WHOLE = f"{_TESTS}::test_a_wipe_erases_every_disk_of_the_inspection_and_shows_the_proof"


def _mutant(what: str, file: str, old: str, new: str, test: str, area: str = "nodes") -> Mutant:
    return Mutant(f"metal wipes: {what}", area, file, old, new, (test,))


_RENTING = "tests/sites/renting/test_tenancies.py"
_RENTED = f"{_RENTING}::test_a_machine_is_deployed_reached_and_wiped"
_NEIGHBOURS = "tests/sites/renting/test_neighbours.py"
_LOGIN_DATA = "tests/sites/renting/test_login_data.py"
_VERBS = "tests/sites/renting/test_verbs.py"
_COMMAND = "orchestrator/allocations/commands/verbs.py"
_SLOTS = "tests/sites/renting/test_slots.py"
_REACHING = "tests/sites/renting/test_reaching.py"
_SITE_TASKS = "orchestrator/tasks/store/site_tasks.py"
_TENANCIES = "orchestrator/sites/tenancies.py"
_RULES = "orchestrator/nodes/deploy_systems/run_rules.py"


def _rented(what: str, file: str, old: str, new: str, test: str, area: str = "nodes") -> Mutant:
    return Mutant(f"metal renting: {what}", area, file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant("hidden disks are left", _ORDERS, "    if report.storage_without_driver:", "    if False:", _REFUSED),
    _mutant("a machine without disks is wiped", _ORDERS, "    if not disks:", "    if disks is None:", _REFUSED),
    _mutant("a disk of two is wiped", _ORDERS, "        if identity.serial in found:", "        if False:", _REFUSED),
    _mutant("the TPM is left", _ORDERS, "report.topology.tpm is not None", "False", _WHOLE),
    _mutant("a machine is wiped in a maintenance window", _RUNS, "writing=order.kind is RunKind.WIPE", "writing=False", _REFUSED),
    _mutant(
        "an open run of another kind is the answer", _RUNS, "known is not None and known.kind is order.kind", "known is not None",
        _REFUSED,
    ),
    _mutant(
        "another machine than the inspected one is wiped", _RUNS, "    if order.smbios_uuid not in (None, known.smbios_uuid):",
        "    if False:", _REFUSED,
    ),
    _mutant(
        "every task has the time of an inspection", _BOOTS, ", seconds_max=run.work_seconds",
        ", seconds_max=RUN_SECONDS_MAX", _WHOLE,
    ),
    _mutant(
        "a hello is waited for as long as its disks need", _BOOTS, "hello_seconds_max=RUN_SECONDS_MAX",
        "hello_seconds_max=run.work_seconds", f"{_TESTS}::test_a_hello_of_a_wipe_is_not_waited_for_as_long_as_its_disks_need",
    ),
    _mutant(
        "the certificate ends before a large disk is erased", _BOOTS,
        "certificate_seconds(run.work_seconds)",
        "2 * RUN_SECONDS_MAX", _WHOLE,
    ),
    _mutant(
        "a failed wipe is shown as proven", "orchestrator/sites/queries.py", 'outcome == "completed"', "True",
        f"{_TESTS}::test_a_wipe_with_an_unproven_disk_is_a_failed_run_with_its_evidence",
    ),
    _mutant(
        "a wipe has no bound", "orchestrator/nodes/deploy_systems/run_rules.py", "min(WIPE_SECONDS_MAX, int(seconds) + 1)",
        "int(seconds) + 1", f"{_TESTS}::test_every_time_of_a_wipe_is_bounded",
    ),
    _mutant(
        "`berth node wipe` asks for no confirmation", "berth/cli/fleet/deploy_systems.py", "    if not yes:", "    if False:",
        "tests/cli/test_run_commands.py::test_a_wipe_is_requested_with_a_confirmation_alone", "client",
    ),
    _mutant(
        "what a failed wipe has done is not reported", "node_agent/deploy_system/effects/wiping.py", "        failure.evidence =",
        "        _ =", "tests/deploy_system/effects/test_wipes.py::test_what_is_left_after_the_overwrite_fails_closed", "agent",
    ),
    _rented(
        "a reboot leaves the machine off", _RULES, "and run.kind is RunKind.REBOOT", "and False",
        f"{_VERBS}::test_a_tenant_switches_its_machine_and_keeps_what_is_on_it",
    ),
    _rented(
        "a start switches the machine off first", _RULES, "if kind is RunKind.START else RunStep.POWER_OFF",
        "if False else RunStep.POWER_OFF",
        f"{_VERBS}::test_a_tenant_switches_its_machine_and_keeps_what_is_on_it",
    ),
    _rented(
        "a start of unknown outcome counts as done", _RULES, " and run.kind not in SWITCHING)", ")",
        f"{_VERBS}::test_a_bmc_that_does_not_do_it_fails_the_verb_and_the_next_one_works",
    ),
    _rented(
        "a verb is a task for an agent", _COMMAND, "        by_site=by_site,", "        by_site=False,",
        f"{_VERBS}::test_a_tenant_switches_its_machine_and_keeps_what_is_on_it",
    ),
    _rented(
        "a verb of a machine has the time of one of a guest", _COMMAND,
        "verb_seconds_max(task_type) if by_site else", "",
        f"{_VERBS}::test_a_verb_has_the_time_of_its_run",
    ),
    _rented(
        "a verb that waits after a restore is a reason to wipe", _TENANCIES,
        " if task.type is TaskType.DEPROVISION_USER else None", "",
        "tests/sites/renting/test_restored.py::test_after_a_restore_a_verb_waits_for_an_operator_and_is_no_reason_to_wipe",
    ),
    _rented(
        "a verb that was not begun has changed the guest", _TENANCIES, "    elif task.type is not TaskType.PROVISION_USER:",
        "    elif False:", f"{_VERBS}::test_what_cannot_be_deployed_anew_changes_nothing",
    ),
    _rented(
        "verbs push out the runs with reports", "orchestrator/nodes/deploy_systems/run_store.py",
        " and (kind in ('stop', 'start', 'reboot', 'rescue', 'attest')) = :is_frequent", "",
        f"{_VERBS}::test_runs_that_switch_push_out_no_run_with_a_report",
    ),
    _rented(
        "a rebuild is a wipe", _TENANCIES, ", TaskType.REBUILD: RebuildParameters}", "}",
        f"{_VERBS}::test_a_rebuilt_machine_has_its_image_anew_and_another_host_key",
    ),
    _rented(
        "the next booking ends the wipe before it", "orchestrator/nodes/deploy_systems/rules.py",
        "self.occupied if self.named in self.occupied else self.claims.keys()", "self.claims.keys()",
        f"{_NEIGHBOURS}::test_what_begins_next_on_the_machine_waits_for_its_wipe",
    ),
    _rented(
        "another end of the allocation ends its deployment", "orchestrator/nodes/deploy_systems/store.py",
        "select a.claim_id from claims c join", "select c.id from claims c join",
        f"{_NEIGHBOURS}::test_another_end_leaves_a_deployment_alone",
    ),
    _rented(
        "login data that no deploy system can have waits for ever", "orchestrator/nodes/deploy_systems/deploy_orders.py",
        "    if size > PARAMETERS_BYTES_MAX:", "    if False:", f"{_LOGIN_DATA}::test_login_data_is_deployed_or_refused",
    ),
    _rented(
        "an inspection that cannot be read waits for ever", _TENANCIES, "    except ValidationError as error:",
        "    except ZeroDivisionError as error:", f"{_LOGIN_DATA}::test_an_inspection_that_cannot_be_read_is_a_failed_task",
    ),
    _rented(
        "tasks that wait are taken by node", _SITE_TASKS, "order by t.queued_at, t.id limit", "order by t.node_id limit",
        f"{_LOGIN_DATA}::test_the_longest_waiting_task_is_first",
    ),
    _rented(
        "a deploy system takes less user data than the API", "node_agent/wire/deploy_tasks.py", "USER_DATA_MAX: Final = 65_536",
        "USER_DATA_MAX: Final = 32_768", f"{_LOGIN_DATA}::test_a_deploy_system_takes_what_the_api_takes",
    ),
    _rented(
        "each attempt of a site has its own deadline", "orchestrator/allocations/commands/provision.py",
        "PROVISION_SECONDS_MAX if attempt == 1 else valid_seconds", "PROVISION_SECONDS_MAX",
        f"{_NEIGHBOURS}::test_all_attempts_of_a_site_have_one_deadline",
    ),
    _rented(
        "a network that never worked is used for tenants", "orchestrator/nodes/deploy_systems/run_store.py",
        "select medium from deploy_runs where node_id = :node_id and outcome = 'completed'",
        "select medium from deploy_runs where node_id = :node_id",
        f"{_NEIGHBOURS}::test_a_network_that_no_run_completed_with_is_used_for_no_tenant",
    ),
    _rented(
        "the network that worked is forgotten after failures", "orchestrator/nodes/deploy_systems/run_store.py",
        "outcome = 'completed' order by id desc limit 1)\n  and", "false)\n  and",
        f"{_NEIGHBOURS}::test_a_network_that_no_run_completed_with_is_used_for_no_tenant",
    ),
    _rented(
        "machines that do not answer take the slots of others", "node_agent/site/runner.py",
        "self._tasks_max - len(self._running) + reaching", "self._tasks_max - len(self._running)",
        f"{_SLOTS}::test_an_agent_has_slots_for_others_while_machines_do_not_answer", "agent",
    ),
    _rented(
        "the next task of a machine waits for its SSH server", "node_agent/site/runner.py",
        "        running.cancel()\n        await asyncio.wait([running])", "        pass",
        f"{_SLOTS}::test_an_agent_has_slots_for_others_while_machines_do_not_answer", "agent",
    ),
    _rented(
        "tasks that wait for SSH count as the others", "orchestrator/sites/store/bmc_tasks.py",
        "(t.kind <> 'reach' or cast(:reach_limit as integer) is null)", "true",
        f"{_SLOTS}::test_tasks_that_wait_for_ssh_take_the_slots_of_none",
    ),
    _rented(
        "the agent of the node leases what a site performs", "orchestrator/tasks/store/tasks.py", "case when :by_site then 0 end",
        "case when :by_site then null end",
        f"{_RENTING}::test_no_agent_of_the_node_leases_or_reports_the_tasks_of_a_site",
    ),
    _rented(
        "what an agent provisioned is wiped away by a site", _SITE_TASKS, "and t.deploy_epoch is null\n", "and false\n",
        f"{_RENTING}::test_what_an_agent_provisioned_is_released_by_the_agent",
    ),
    _rented(
        "a run goes on whose task was superseded", "orchestrator/nodes/deploy_systems/run_store.py",
        "coalesce(k.state not in ('queued', 'dispatched'), true) as is_stopped,\n       r.kind",
        "false as is_stopped,\n       r.kind",
        f"{_RENTING}::test_a_release_at_any_step_undoes_the_deployment_and_wipes[work]",
    ),
    _rented("a machine is active at power on", _RULES, "RunStep.POWER_ON: Move.REACH", "RunStep.POWER_ON: Move.CLOSE", _RENTED),
    _rented(
        "another host key is a proof", "node_agent/site/reaching.py", "server.port, server.host_key, ATTEMPT",
        "server.port, None, ATTEMPT", f"{_REACHING}::test_the_expected_host_key_is_a_proof_and_another_one_is_none", "agent",
    ),
    _rented(
        "a machine is reached after the lease", "node_agent/site/reaching.py", "                guard()\n", "",
        f"{_REACHING}::test_nothing_is_reached_after_the_lease", "agent",
    ),
    _rented(
        "the largest disk is the root disk", "orchestrator/nodes/deploy_systems/root_disks.py", "return min(fitting",
        "return max(fitting", _RENTED,
    ),
    _rented(
        "a qcow2 image is tried",
        "orchestrator/nodes/deploy_systems/deploy_orders.py",
        "image.format is not ImageFormat.RAW or ",
        "",
        f"{_RENTING}::test_what_no_run_can_perform_fails_at_once",
    ),
    _rented(
        "an operator stops the run of an allocation", _RUNS, "        if run.allocation_id is not None:", "        if False:",
        f"{_RENTING}::test_an_operator_does_not_stop_the_run_of_an_allocation",
    ),
    _rented(
        "keys stay in the task of the deploy system", "orchestrator/nodes/deploy_systems/task_store.py",
        "set parameters = parameters - 'config_drive'", "set parameters = parameters",
        f"{_RENTING}::test_nothing_of_the_tenants_login_stays_after_the_release",
    ),
    _rented(
        "keys stay in the run", "orchestrator/nodes/deploy_systems/run_store.py", "parameters = parameters - 'config_drive'",
        "parameters = parameters", f"{_RENTING}::test_nothing_of_the_tenants_login_stays_after_the_release",
    ),
    _rented(
        "the BMC of a rented machine is removed",
        "orchestrator/sites/commands/bmcs.py",
        "        if renting:",
        "        if False:",
        f"{_RENTING}::test_the_removal_of_the_bmc_is_refused_while_a_tenant_is_there",
    ),
    _rented(
        "a disk of the deployment need not be wiped",
        _TENANCIES,
        '"devices": [device_name(disk.serial) for disk in disks if disk.serial is not None]',
        '"devices": []', f"{_RENTING}::test_a_disk_that_was_deployed_and_is_not_wiped_keeps_the_units",
    ),
    _rented(
        "a start of another permission ends the task of the allocation", "orchestrator/nodes/deploy_systems/store.py",
        "and deploy_epoch > 0", "and deploy_epoch is not null", _RENTED,
    ),
]  # fmt: skip
