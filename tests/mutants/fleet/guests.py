"""Mutants of verbs on guests: what orders one, what ends it, and what supersedes it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_VERBS = "tests/guests/test_verbs.py"
_RIVALS = "tests/guests/test_rivals.py"
_AGENT = "tests/node_agent/test_verbs.py"
_COMMANDS = "orchestrator/allocations/commands/verbs.py"
_STORE = "orchestrator/allocations/store"

MUTANTS: list[Mutant] = [
    Mutant(
        "a verb is ordered while another is in progress",
        "allocations",
        "orchestrator/allocations/rules.py",
        "        raise VerbInProgress.of(subject.guest_verb)",
        "        return True",
        (f"{_VERBS}::test_verbs_are_refused_before_active_after_it_past_the_end_and_for_others",),
    ),
    Mutant(
        "the verb in progress is ordered again",
        "allocations",
        "orchestrator/allocations/rules.py",
        "        if subject.guest_verb == verb:\n            return False\n",
        "",
        (f"{_VERBS}::test_a_verb_with_nothing_to_do_changes_nothing",),
    ),
    Mutant(
        "a verb changes the guest of another tenant",
        "allocations",
        _COMMANDS,
        "subject = await lock_allocation(tx, allocation_id, tenant_id)",
        "subject = await lock_allocation(tx, allocation_id, None)",
        (f"{_VERBS}::test_verbs_are_refused_before_active_after_it_past_the_end_and_for_others",),
    ),
    Mutant(
        "a verb keeps the fence of the task before",
        "allocations",
        _COMMANDS,
        "fence = await draw_fence(tx, subject.claim_id)",
        "fence = subject.fence",
        (f"{_VERBS}::test_verbs_change_the_guest_and_keep_claim_quota_and_metering",),
    ),
    Mutant(
        "a verb concludes by the task before it",
        "allocations",
        _COMMANDS,
        "task is None or task.fence != subject.fence:",
        "task is None:",
        (f"{_RIVALS}::test_a_verb_that_has_not_begun_has_no_end",),
    ),
    Mutant(
        "a release leaves the verb in progress",
        "allocations",
        f"{_STORE}/advance.py",
        "        guest_verb = null,\n",
        "",
        (f"{_RIVALS}::test_a_release_supersedes_a_verb_in_each_of_its_steps",),
    ),
    Mutant(
        "a refused task makes the guest unknown",
        "allocations",
        "orchestrator/allocations/rules.py",
        "return GuestState(before) if code in CHANGES_NOTHING else GuestState.UNKNOWN",
        "return GuestState.UNKNOWN",
        (f"{_VERBS}::test_a_failed_verb_leaves_the_allocation_active_and_says_why",),
    ),
    Mutant(
        "a lost workflow of a verb is not looked for",
        "worker",
        f"{_STORE}/due.py",
        "('requested', 'provisioning', 'active', 'releasing') and a.waits_for <> 'units'",
        "('requested', 'provisioning', 'releasing') and a.waits_for <> 'units'",
        (f"{_RIVALS}::test_a_lost_workflow_of_a_verb_is_found_and_replaced",),
    ),
    Mutant(
        "the consumer of an earlier version gets no verbs",
        "worker",
        "worker/consumers/durable.py",
        "[*(config.filter_subjects or ()), *FILTER_SUBJECTS]",
        "[*(config.filter_subjects or ())]",
        (
            "tests/worker/test_saved_positions.py::test_a_consumer_of_an_older_version_gets_the_bound_and_the_events_of_this_one",
        ),
    ),
    Mutant(
        "a release waits for the verb of its guest",
        "agent",
        "node_agent/executor.py",
        "older.type not in PROVISIONS | VERBS | _NOT_INTERRUPTED or",
        "older.type not in PROVISIONS or",
        (f"{_AGENT}::test_a_release_interrupts_a_verb_and_removes_the_guest",),
    ),
    Mutant(
        "an interrupted verb is not repeated",
        "agent",
        "node_agent/executor.py",
        "body.type not in RELEASES | VERBS:",
        "body.type not in RELEASES:",
        (f"{_AGENT}::test_a_verb_interrupted_by_sigkill_runs_again_from_its_start",),
    ),
]
