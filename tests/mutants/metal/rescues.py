"""Mutants of the rescue of a rented machine: what is handed over to its tenant, and what is not."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = "orchestrator/nodes/deploy_systems/run_rules.py"
_RUN_STORE = "orchestrator/nodes/deploy_systems/run_store.py"
_TASK_STORE = "orchestrator/nodes/deploy_systems/task_store.py"
_RUNS = "orchestrator/sites/commands/runs.py"
_BOOTS = "orchestrator/sites/boots.py"
_SITE_TASKS = "orchestrator/tasks/store/site_tasks.py"
_COMMAND = "orchestrator/allocations/commands/verbs.py"
_VERB_STORE = "orchestrator/allocations/store/verbs.py"
_ROWS = "orchestrator/allocations/store/rows.py"
_LOOP = "node_agent/deploy_system/loop.py"
_WORK = "node_agent/deploy_system/effects/rescuing.py"
_RESCUES = "tests/sites/renting/test_rescues.py"
_HANDED = f"{_RESCUES}::test_a_rescue_hands_over_a_machine_without_its_medium_and_its_certificate"
_LEFT = f"{_RESCUES}::test_the_next_verb_ends_the_rescue_and_boots_the_disk"
_NOT_EJECTED = f"{_RESCUES}::test_a_medium_that_cannot_be_ejected_is_no_rescue"
_KEYS = f"{_RESCUES}::test_keys_that_the_tenant_has_removed_give_no_access"
_RELEASED = f"{_RESCUES}::test_a_release_at_any_step_of_a_rescue_wipes"
_AGENT = "tests/deploy_system/test_rescues.py"
_WAITS = f"{_AGENT}::test_it_waits_for_the_hand_over_and_deletes_the_token"
_PREPARED = "tests/deploy_system/effects/test_rescues.py::test_the_keys_of_the_tenant_and_a_new_host_key_are_prepared"
_SITE = "tests/sites/test_boots.py"


def _rescue(what: str, file: str, old: str, new: str, test: str, area: str = "nodes") -> Mutant:
    return Mutant(f"metal rescues: {what}", area, file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _rescue(
        "the medium stays in the machine",
        _RULES,
        "Move.EJECT if is_rescue else Move.END",
        "Move.REACH if is_rescue else Move.END",
        _HANDED,
    ),
    _rescue(
        "what was not prepared is handed over",
        _RULES,
        "run.kind is RunKind.RESCUE and part.failure is None",
        "run.kind is RunKind.RESCUE",
        "tests/sites/renting/test_run_rules.py::test_a_run_never_waits_for_what_is_over_and_never_leaves_a_deploy_system",
    ),
    _rescue(
        "the certificate counts on",
        _RUNS,
        '            await store.end_permission(tx, run.node_id, "handed_over")',
        "            pass",
        _HANDED,
    ),
    _rescue(
        "the certificate ends before the medium is ejected",
        _RUNS,
        "        if following.move is Move.REACH and",
        "        if following.move is Move.EJECT and",
        _HANDED,
    ),
    _rescue("a machine is powered off instead", _BOOTS, 'then = "hand_over" if', 'then = "power_off" if', _HANDED),
    _rescue(
        "a switch leaves the rescue system on",
        _RULES,
        "    if ends_first and kind in SWITCHING:",
        "    if False:",
        _LEFT,
    ),
    _rescue(
        "a machine stays off after its rescue",
        _RULES,
        "(RunKind.DEPLOY, RunKind.START, RunKind.REBOOT)",
        "(RunKind.DEPLOY,)",
        _LEFT,
    ),
    _rescue(
        "every later switch forces the machine off",
        _RUN_STORE,
        " and l.outcome = 'completed'))",
        " and false))",
        _LEFT,
    ),
    _rescue(
        "what a failed rescue has left is not ended",
        _RUN_STORE,
        "r.kind = 'rescue' and r.deploy_epoch is not null",
        "r.kind = 'rescue' and r.outcome = 'completed'",
        _NOT_EJECTED,
    ),
    _rescue(
        "an end of a rescue is tried once more than others",
        _RUN_STORE,
        "case when :step = 'end' then 1 else 0 end",
        "0",
        f"{_RESCUES}::test_a_rescue_that_cannot_be_left_is_tried_as_often_as_any_end",
    ),
    _rescue(
        "rescues push out the runs with reports",
        _RUN_STORE,
        "(kind in ('stop', 'start', 'reboot', 'rescue', 'attest')) = :is_frequent",
        "(kind in ('stop', 'start', 'reboot', 'attest')) = :is_frequent",
        f"{_RESCUES}::test_rescues_push_out_no_run_with_a_report",
    ),
    _rescue(
        "twenty failed verbs hide that a rescue system may run",
        _RUN_STORE,
        "node_id = :node_id and kind = 'rescue' and deploy_epoch is not null order by id desc limit 1)\n",
        "false)\n",
        "tests/sites/renting/test_rescue_orders.py::test_however_many_verbs_fail_a_rescue_system_that_may_run_is_ended_first",
    ),
    _rescue(
        "a rescue is ordered before an operator allows it",
        "orchestrator/allocations/commands/verbs.py",
        " and not context.limits.rescues_allowed:\n",
        " and False:\n",
        "tests/sites/renting/test_rescue_orders.py::test_no_rescue_is_ordered_before_an_operator_allows_them",
    ),
    _rescue(
        "a removed key logs in",
        _SITE_TASKS,
        "join ssh_keys k on k.tenant_id = a.tenant_id and k.public_key = any (a.ssh_public_keys)",
        "cross join lateral unnest(a.ssh_public_keys) k(public_key)",
        _KEYS,
    ),
    _rescue(
        "every key of the tenant logs in",
        _SITE_TASKS,
        " and k.public_key = any (a.ssh_public_keys)",
        "",
        f"{_RESCUES}::test_another_key_of_the_tenant_does_not_log_in",
    ),
    _rescue(
        "the keys stay in the task of the deploy system",
        _TASK_STORE,
        "parameters - 'config_drive' - 'ssh_public_keys',",
        "parameters - 'config_drive',",
        _HANDED,
    ),
    _rescue(
        "the keys stay in the envelope",
        _TASK_STORE,
        "t.type in ('metal.deploy', 'metal.rescue')",
        "t.type = 'metal.deploy'",
        _HANDED,
    ),
    _rescue(
        "the keys stay in the run",
        _RUN_STORE,
        "parameters - 'config_drive' - 'ssh_public_keys',",
        "parameters - 'config_drive',",
        _HANDED,
    ),
    _rescue(
        "a slice is rescued",
        _COMMAND,
        "verb is Verb.RESCUE and not await _is_by_site(tx, subject)",
        "False",
        "tests/guests/test_verbs.py::test_verbs_are_refused_before_active_after_it_past_the_end_and_for_others",
        "allocations",
    ),
    _rescue(
        "a rescue of a rescue restarts it",
        "orchestrator/allocations/rules.py",
        "frozenset({Verb.STOP, Verb.START, Verb.RESCUE})",
        "frozenset({Verb.STOP, Verb.START})",
        f"{_RESCUES}::test_a_rescue_of_a_rescue_changes_nothing",
        "allocations",
    ),
    _rescue(
        "the login of a rescue outlives it",
        _VERB_STORE,
        "case when :guest_state = 'rescue' then coalesce(cast(:rescue as jsonb), rescue) end",
        "coalesce(cast(:rescue as jsonb), rescue)",
        f"{_RESCUES}::test_a_rebuild_ends_the_rescue",
        "allocations",
    ),
    _rescue(
        "the login of a rescue outlives the tenancy",
        "orchestrator/allocations/store/advance.py",
        "        rescue = null,\n",
        "",
        _RELEASED,
        "allocations",
    ),
    _rescue(
        "the login of a rescue is not shown",
        _ROWS,
        "row.rescue if row.guest_state == GuestState.RESCUE else None",
        "None",
        _HANDED,
        "allocations",
    ),
    _rescue(
        "a rescue has the time of a switch",
        _SITE_TASKS,
        "in (TaskType.REBUILD, TaskType.RESCUE)",
        "is TaskType.REBUILD",
        "tests/sites/renting/test_verbs.py::test_a_verb_has_the_time_of_its_run",
    ),
    _rescue(
        "the tenant is let in while the certificate counts",
        _LOOP,
        "                await self._handed_over(connection)",
        "                pass",
        _WAITS,
        "agent",
    ),
    _rescue(
        "the token is left to the tenant",
        _LOOP,
        "            self.settings.medium.unlink()",
        "            pass",
        _WAITS,
        "agent",
    ),
    _rescue(
        "any refusal is a hand-over",
        "node_agent/deploy_system/connection.py",
        "UNAUTHORIZED and _ended(content) == ENDED:",
        "UNAUTHORIZED:",
        f"{_AGENT}::test_any_other_end_of_the_permission_is_no_hand_over",
        "agent",
    ),
    _rescue(
        "a failed rescue is handed over",
        _LOOP,
        'report.outcome == "completed" and then',
        "then",
        f"{_AGENT}::test_a_rescue_that_cannot_be_prepared_powers_the_machine_off",
        "agent",
    ),
    _rescue(
        "the keys of an earlier attempt stay",
        _WORK,
        "    file.write_bytes(content)",
        "    file.open('ab').write(content)",
        _PREPARED,
        "agent",
    ),
    _rescue("the comment of a key is kept", _WORK, '" ".join(line.split()[:2])', "line", _PREPARED, "agent"),
    _rescue(
        "a rescue without a server is prepared",
        _WORK,
        "        if found.status != 0:",
        "        if False:",
        "tests/deploy_system/effects/test_rescues.py::test_a_medium_without_an_ssh_server_is_named",
        "agent",
    ),
    _rescue(
        "the medium is served to the end of the lease",
        "node_agent/site/effects.py",
        "        self._media.withdraw(order.body.node_id)\n        generation, _ =",
        "        generation, _ =",
        f"{_SITE}::test_a_medium_that_a_bmc_does_not_eject_is_named_and_is_served_no_more",
        "agent",
    ),
    _rescue(
        "the next start boots the CD",
        "node_agent/site/boots.py",
        "    pass_point(CrashPoint.EJECT_AFTER_EJECTED)\n    await _boot_from_disk(bmc)",
        "    pass_point(CrashPoint.EJECT_AFTER_EJECTED)",
        f"{_SITE}::test_a_medium_that_a_bmc_does_not_eject_is_named_and_is_served_no_more",
        "agent",
    ),
]
