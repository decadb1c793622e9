"""Mutants of the adoption of machines that run already, and of the release that inspects them first."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = "orchestrator/sites/adopting/rules.py"
_COMMAND = "orchestrator/sites/commands/adoptions.py"
_RECORDED = "orchestrator/allocations/store/adopting.py"
_STORED = "orchestrator/sites/store/adoptions.py"
_TENANCIES = "orchestrator/sites/tenancies.py"
_RUNS = "orchestrator/sites/commands/runs.py"
_TASKS = "orchestrator/tasks/store/site_tasks.py"
_TESTS = "tests/sites/adopting"
_RULE_TESTS = f"{_TESTS}/test_rules.py"
_REFUSALS = f"{_TESTS}/test_refusals.py"
_RELEASES = f"{_TESTS}/test_releases.py"
_VERBS = f"{_TESTS}/test_verbs.py"
_ADOPTED = f"{_TESTS}/test_adoptions.py::test_an_adopted_machine_is_an_active_allocation_of_its_tenant"
_SAID = f"{_TESTS}/test_adoptions.py::test_timeline_events_and_audit_say_that_it_was_adopted"
_BROKEN = f"{_REFUSALS}::test_a_machine_that_is_not_as_it_must_be_is_refused"
_FIRST = f"{_RELEASES}::test_a_release_inspects_first_and_then_wipes_every_disk"
_STATED = f"{_REFUSALS}::test_what_the_operator_states_must_be_right"
_VERIFIED = "tests/berth/test_verification.py::test_a_planted_violation_is_found"


def _adoption(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"metal adoptions: {what}", "nodes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _adoption(
        "a machine with switch ports is adopted",
        _COMMAND,
        "        if await has_ports(tx, node_id):\n",
        "        if False:\n",
        f"{_REFUSALS}::test_a_machine_with_switch_ports_is_refused_and_gets_none",
    ),
    _adoption(
        "a release wipes by an inspection of before the adoption",
        _STORED,
        "select a.adoption -> 'medium' as medium, exists (\n           select from deploy_runs r\n"
        "           where r.node_id = a.node_id and r.allocation_id = a.id and",
        "select a.adoption -> 'medium' as medium, exists (\n           select from deploy_runs r\n"
        "           where r.node_id = a.node_id and",
        f"{_RELEASES}::test_an_inspection_before_the_adoption_does_not_count",
    ),
    _adoption(
        "a rebuild writes without an inspection",
        _TENANCIES,
        "frozenset({TaskType.DEPROVISION_USER, TaskType.REBUILD})",
        "frozenset({TaskType.DEPROVISION_USER})",
        f"{_VERBS}::test_a_rebuild_inspects_the_machine_first_and_deploys_then",
    ),
    _adoption(
        "the inspection ends the release",
        _TENANCIES,
        "if run.task_id is None or (run.kind is RunKind.INSPECT and outcome is RunOutcome.COMPLETED):",
        "if run.task_id is None:",
        _FIRST,
    ),
    _adoption(
        "an inspection that failed is no cleanup that failed",
        _TENANCIES,
        "run.kind is RunKind.WIPE or await site_tasks.is_release(tx, run.task_id)",
        "run.kind is RunKind.WIPE",
        f"{_RELEASES}::test_a_failed_inspection_fails_the_attempt_and_the_next_one_inspects_again",
    ),
    _adoption(
        "a release never goes on after its inspection",
        _TASKS,
        "and not exists (select from deploy_runs r where r.node_id = t.node_id and (\n"
        "      r.ended_at is null or r.task_id = t.id and not (r.kind = 'inspect' and r.outcome = 'completed')))\n"
        "  and not exists (select from bmc_tasks b where b.node_id = t.node_id and b.ended_at is null)\n"
        '  and not exists (select from deploy_tasks d where d.node_id = t.node_id and d.ended_at is null)\n"""',
        "and not exists (select from deploy_runs r where r.node_id = t.node_id and (\n"
        "      r.ended_at is null or r.task_id = t.id))\n"
        "  and not exists (select from bmc_tasks b where b.node_id = t.node_id and b.ended_at is null)\n"
        '  and not exists (select from deploy_tasks d where d.node_id = t.node_id and d.ended_at is null)\n"""',
        _FIRST,
    ),
    _adoption(
        "after a restore a machine that no run has inspected is never wiped",
        _RUNS,
        "is_unseen = owner is not None and await needs_inspection(tx, owner.allocation_id)",
        "is_unseen = False",
        f"{_VERBS}::test_after_a_restore_the_operator_has_it_inspected_and_then_wiped",
    ),
    _adoption(
        "verbs are issued to an agent that the machine does not have",
        _TASKS,
        "    or exists (select from allocations where id = :id and adoption is not null)\n",
        "",
        f"{_VERBS}::test_a_tenant_switches_its_adopted_machine",
    ),
    _adoption(
        "a later claim is no obstacle",
        _COMMAND,
        "        await require_no_open_claims(tx, node_id)\n",
        "",
        f"{_REFUSALS}::test_a_later_claim_on_the_node_refuses_it",
    ),
    _adoption(
        "a run on the machine is no obstacle",
        _COMMAND,
        "        await require_no_run(tx, node_id)\n        await require_idle(tx, node_id)\n",
        "",
        f"{_REFUSALS}::test_while_something_works_on_the_machine_it_is_refused",
    ),
    _adoption(
        "a node in service is adopted",
        _RULES,
        "if node.state not in ADOPTABLE:",
        "if node.state is NodeState.RETIRED:",
        _BROKEN,
    ),
    _adoption(
        "a machine with an agent is adopted",
        _RULES,
        "    if node.has_agent:\n",
        "    if node.has_agent and node.is_awaited:\n",
        _RULE_TESTS,
    ),
    _adoption(
        "a machine whose content is unknown since a restore is adopted",
        _RULES,
        "    if node.is_awaited:\n",
        "    if node.is_awaited and node.slots_out == 0:\n",
        f"{_REFUSALS}::test_after_a_restore_the_content_must_be_known_first",
    ),
    _adoption(
        "a part of the node is sold",
        _RULES,
        "elif node.slot_count not in sku.allowed_counts:",
        "elif not sku.allowed_counts:",
        _RULE_TESTS,
    ),
    _adoption(
        "an old description counts",
        _RULES,
        "if age > LOOK_SECONDS_MAX:",
        "if age > 2 * LOOK_SECONDS_MAX:",
        _RULE_TESTS,
    ),
    _adoption(
        "a machine that is off is adopted",
        _RULES,
        'if look.power_state != "On":',
        "if look.power_state is None:",
        _RULE_TESTS,
    ),
    _adoption(
        "a silent BMC counts",
        _RULES,
        "if look.silent_because is not None:",
        'if look.silent_because == "":',
        _RULE_TESTS,
    ),
    _adoption(
        "another UUID than the stated one is accepted",
        _RULES,
        "if len(set(known.values())) > 1:",
        "if len(set(known.values())) > 2:",
        _STATED,
    ),
    _adoption(
        "another serial than the stated one is accepted",
        _RULES,
        "if stated.serial is not None and stated.serial != serial:",
        "if stated.serial is not None and not serial:",
        _STATED,
    ),
    _adoption(
        "the quota is not compared",
        _COMMAND,
        "quota.gpus_used + gpus > quota.gpus_limit",
        "quota.gpus_used > quota.gpus_limit",
        _BROKEN,
    ),
    _adoption(
        "the quota is not counted",
        _RECORDED,
        "gpus_used = q.gpus_used + p.slot_count",
        "gpus_used = q.gpus_used",
        _ADOPTED,
    ),
    _adoption(
        "a suspended tenant gets a machine",
        _COMMAND,
        'if quota.state != "active":',
        'if quota.state == "deleted":',
        _BROKEN,
    ),
    _adoption(
        "a node that was registered stays offline for ever",
        _STORED,
        "where id = :node_id and state = 'registered'\n",
        "where id = :node_id and state = 'retired'\n",
        _ADOPTED,
    ),
    _adoption(
        "the units look free",
        _RECORDED,
        '    await tx.execute(_FIT, {"node_id": node_id})\n',
        "",
        _ADOPTED,
    ),
    _adoption(
        "its timeline does not say that it was adopted",
        _RECORDED,
        "    await note(tx, allocation_id, actor, ADOPTED, detail, subject.fence)\n",
        "",
        _SAID,
    ),
    _adoption(
        "its events do not say that it was adopted",
        _RECORDED,
        '"price_version": subject.price_version, "adopted": True,',
        '"price_version": subject.price_version,',
        _SAID,
    ),
    _adoption(
        "a port that the BMC does not report is not named",
        _RULES,
        "(Gap.NETWORK_PORT, stated.mac not in ports),",
        "(Gap.NETWORK_PORT, not ports),",
        _RULE_TESTS,
    ),
    _adoption(
        "an operator activates what was not adopted",
        "orchestrator/verification/p8_final_states.py",
        "select from allocations a where a.id = s.allocation_id and a.adoption is not null))",
        "select from allocations a where a.id = s.allocation_id))",
        f"{_VERIFIED}[activated_by_an_operator_without_an_adoption]",
    ),
    _adoption(
        "an allocation without an operation is excused by its key",
        "orchestrator/verification/p2_together.py",
        "and not (a.adoption is not null and a.operation_key like 'adopts:%%')",
        "and not (a.operation_key like 'adopts:%%')",
        f"{_VERIFIED}[a_key_of_an_adoption_of_what_was_not_adopted]",
    ),
]
