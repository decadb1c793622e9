"""Mutants of the health of allocations: what is noticed, by whose report, once, until when, and what is credited."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STORE = "orchestrator/allocations/store/health.py"
_DIFFERING = "migrations/functions/allocations/differing_allocations.sql"
_RULES = "orchestrator/allocations/health.py"
_COMMANDS = "orchestrator/allocations/commands/health.py"
_CREDIT = "migrations/functions/billing/credit_outages.sql"
_NOTICING = "tests/health/test_noticing.py"
_ENDING = "tests/health/test_ending.py"
_CREDITS = "tests/health/test_credits.py"
_UNREACHABLE = f"{_NOTICING}::test_an_unreachable_guest_is_announced_and_has_no_deadline_and_its_end_begins_an_outage"


def _mutant(name: str, noun: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"health: {name}", noun, file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "an old inventory counts", "allocations", _DIFFERING, "  and greatest(a.active_at, a.waits_since) < p_after\n", "",
        f"{_NOTICING}::test_a_guest_that_is_gone_is_noticed_only_by_an_inventory_from_after_its_start",
    ),
    _mutant(
        "a guest that a verb stops is down", "allocations", _DIFFERING, " and a.guest_verb is null\n", "\n",
        f"{_NOTICING}::test_during_a_verb_a_guest_may_be_down",
    ),
    _mutant(
        "an agent reports on allocations of another node", "allocations", _DIFFERING,
        "where a.node_id = p_node and a.state = 'active' and a.guest_verb", "where a.state = 'active' and a.guest_verb",
        f"{_NOTICING}::test_a_lying_agent_changes_nothing_of_another_node",
    ),
    _mutant(
        "a guest that ended is not started, since it counts as running", "allocations", "orchestrator/allocations/rules.py",
        "subject.health is None and ", "",
        f"{_NOTICING}::test_the_tenant_can_start_a_guest_that_ended_although_it_counts_as_running",
    ),
    _mutant(
        "a repeated report is an event", "allocations", _RULES, "if seen.health is now.health or", "if",
        f"{_NOTICING}::test_a_guest_that_is_down_is_degraded_once_then_lost_or_recovered",
    ),
    _mutant(
        "a deadline passes before its time", "allocations", _STORE, " and a.health_until <= clock_timestamp()\n", "\n",
        f"{_ENDING}::test_degraded_becomes_lost_and_lost_is_released_each_at_its_deadline",
    ),
    _mutant(
        "a lost allocation is kept for ever", "allocations", _RULES, "return self.release_seconds or None if", "return None if",
        f"{_ENDING}::test_degraded_becomes_lost_and_lost_is_released_each_at_its_deadline",
    ),
    _mutant(
        "the release of a lost allocation is not audited", "allocations", _COMMANDS,
        '        await audit.record(tx, POLICY, "allocation.release", subject.name, {"reason": REASON}, None)\n', "",
        f"{_ENDING}::test_degraded_becomes_lost_and_lost_is_released_each_at_its_deadline",
    ),
    _mutant(
        "the silence of a node degrades nothing", "nodes", "orchestrator/nodes/commands/heartbeat.py",
        "        await note_silence(tx, node_id, deadlines_of(context))\n", "",
        f"{_NOTICING}::test_a_silent_node_degrades_each_of_its_allocations_once_for_their_tenants",
    ),
    _mutant(
        "a time is credited twice", "billing", _CREDIT,
        "where l.allocation_id = c.allocation_id and l.kind = 'credit')", "where false)",
        f"{_CREDITS}::test_outages_in_a_row_never_credit_a_time_twice_and_a_release_ends_the_last",
    ),
    _mutant(
        "a guest that its tenant powered off is free of charge", "billing", "worker/metering/meter.py",
        "ends_at = data[lost_field] if is_with_tenant else data[end_field]", "ends_at = data[end_field]",
        f"{_CREDITS}::test_a_guest_that_stays_ended_is_credited_until_it_counts_as_lost[False]",
    ),
    _mutant(
        "a guest whose port its tenant closed is free of charge", "billing", "worker/metering/meter.py",
        " or data[cause_field] == OutageCause.GUEST_UNREACHABLE:", ":",
        f"{_CREDITS}::test_a_guest_that_ran_and_did_not_answer_is_credited_nothing[False]",
    ),
    _mutant(
        "an unreachable guest is lost and released", "allocations", _RULES,
        "return None if condition.cause is OutageCause.GUEST_UNREACHABLE else self.lost_seconds", "return self.lost_seconds",
        _UNREACHABLE,
    ),
    _mutant(
        "an unreachable guest that ends stays unreachable", "allocations", _RULES,
        "        return None if seen == now else seen\n", "        return seen if seen == HEALTHY else None\n", _UNREACHABLE,
    ),
    _mutant(
        "an outage begins when its guest stopped answering", "allocations", _STORE,
        "coalesce(case when a.health_cause <> 'guest_unreachable' then a.health_since end, at.now) end",
        "coalesce(a.health_since, at.now) end", _UNREACHABLE,
    ),
    _mutant(
        "the silence of a node spares unreachable guests", "allocations", _STORE,
        "a.state = 'active' and (a.health is null or a.health_cause = 'guest_unreachable')\n",
        "a.state = 'active' and a.health is null\n",
        f"{_NOTICING}::test_the_silence_of_a_node_is_an_outage_of_unreachable_guests_too",
    ),
    _mutant(
        "a guest is unreachable at its first silence", "agent", "node_agent/drivers/reachability.py",
        ">= self._silent_seconds:", ">= 0:", "tests/drivers/test_reachability.py",
    ),
    _mutant(
        "a guest that answers again stays unreachable", "agent", "node_agent/drivers/reachability.py",
        "        self._unreachable.discard(allocation_id)\n", "", "tests/drivers/test_reachability.py",
    ),
    _mutant(
        "time that was not metered is credited", "billing", _CREDIT, "greatest(c.starts_at, i.active_at, c.after,",
        "greatest(c.starts_at, c.after,",
        f"{_CREDITS}::test_no_credit_begins_before_the_metered_time",
    ),
]  # fmt: skip
