"""Mutations of the bounds of pages, batches and sweeps, and of what an error of Temporal means."""

from __future__ import annotations

from tests.mutants.mutant import Mutant


def _pages(case: str) -> tuple[str, ...]:
    """The test of a list's pages."""
    return (f"tests/api/test_pages.py::test_pages_are_the_whole_list[{case}]",)


_BATCHES = "tests/log/test_more_than_one_batch.py"
_BEHIND = "tests/webhooks/test_far_behind.py"
_SWEEPS = "tests/worker/test_sweeps_of_many.py"

BATCH_BOUNDS: list[Mutant] = [
    Mutant(
        "the tail takes what it has read for all there is",
        "log",
        "orchestrator/log/feed/feed.py",
        "before = Head(scan.scanned_to, head.leader_id, head.accepted_leader_id)",
        "before = head",
        (_BATCHES,),
    ),
    Mutant(
        "one statement sequences all there is",
        "log",
        "orchestrator/log/commands/sequence.py",
        "        if moved < BATCH_MAX:\n",
        "        if moved <= BATCH_MAX:\n",
        (f"{_BATCHES}::test_the_version_includes_more_events_than_one_statement_sequences",),
    ),
    Mutant(
        "a webhook's position moves to the head after a full scan",
        "webhooks",
        "orchestrator/webhooks/store/dispatch.py",
        "case when r.events < :batch then r.head else r.last end",
        "r.head",
        (_BEHIND,),
    ),
    Mutant(
        "a dispatcher's round never has more to write down",
        "webhooks",
        "worker/webhooks/dispatching.py",
        "return advanced.unfinished > 0 or advanced.moved == WEBHOOKS_MAX",
        "return False",
        (_BEHIND,),
    ),
    Mutant(
        "a dispatcher's round forgets webhooks that it did not reach",
        "webhooks",
        "worker/webhooks/dispatching.py",
        "return advanced.unfinished > 0 or advanced.moved == WEBHOOKS_MAX",
        "return advanced.unfinished > 0",
        (_BEHIND,),
    ),
    Mutant(
        "a list has one page",
        "tenants",
        "orchestrator/http/paging.py",
        "    more = len(found) > limit\n",
        "    more = False\n",
        _pages("/api/v1/ssh-keys "),
    ),
    Mutant(
        "a page begins behind the item that was read ahead",
        "tenants",
        "orchestrator/http/paging.py",
        "cursor_after(kind, place(items[-1]))",
        "cursor_after(kind, place(found[-1]))",
        _pages("/api/v1/ssh-keys "),
    ),
    Mutant(
        "a list by id does not read ahead",
        "tenants",
        "orchestrator/http/paging.py",
        "place_after(query.cursor, kind, UUID, FIRST_ID), query.limit + 1",
        "place_after(query.cursor, kind, UUID, FIRST_ID), query.limit",
        _pages("/api/v1/ssh-keys "),
    ),
    Mutant(
        "a list by name does not read ahead",
        "catalogue",
        "orchestrator/http/paging.py",
        'place_after(query.cursor, kind, bounded_text, ""), query.limit + 1',
        'place_after(query.cursor, kind, bounded_text, ""), query.limit',
        _pages("/api/v1/skus "),
    ),
    Mutant(
        "the timeline repeats an entry",
        "allocations",
        "orchestrator/allocations/store/rows.py",
        "from allocation_timeline where allocation_id = :id and id > :after order by id limit :limit",
        "from allocation_timeline where allocation_id = :id and id >= :after order by id limit :limit",
        _pages("/api/v1/allocations/{allocation_id}/timeline "),
    ),
    Mutant(
        "deliveries repeat a number",
        "webhooks",
        "orchestrator/webhooks/store/deliveries.py",
        "d.number < :before and",
        "d.number <= :before and",
        _pages("/api/v1/webhooks/{webhook_id}/deliveries "),
    ),
    Mutant(
        "usage by allocation repeats a line",
        "billing",
        "orchestrator/billing/store/usage.py",
        "from costs where id::text > :after",
        "from costs where id::text >= :after",
        _pages("/api/v1/usage {'by': 'allocation'}"),
    ),
    Mutant(
        "usage by day repeats a line",
        "billing",
        "orchestrator/billing/store/usage.py",
        "having to_char(day, 'YYYY-MM-DD') || ' ' || tenant_id > :after",
        "having to_char(day, 'YYYY-MM-DD') || ' ' || tenant_id >= :after",
        _pages("/api/v1/usage {'by': 'day'}"),
    ),
    Mutant(
        "usage by tenant repeats a line",
        "billing",
        "orchestrator/billing/store/usage.py",
        "having tenant_id::text > :after",
        "having tenant_id::text >= :after",
        _pages("/api/v1/usage {'by': 'tenant'}"),
    ),
    Mutant(
        "the audit repeats an entry",
        "audit",
        "orchestrator/audit/store.py",
        "from audit where id > :after and",
        "from audit where id >= :after and",
        _pages("/api/v1/admin/audit "),
    ),
    Mutant(
        "one sweep retires one batch of operations",
        "operations",
        "worker/sweepers/retirement.py",
        "        if retired < BATCH_MAX:\n",
        "        if retired <= BATCH_MAX:\n",
        (f"{_SWEEPS}::test_one_sweep_retires_several_batches_of_operations",),
    ),
    Mutant(
        "one sweep retires one batch of reservations",
        "reservations",
        "worker/sweepers/reservations.py",
        "        if retired < limit:\n",
        "        if retired <= limit:\n",
        (f"{_SWEEPS}::test_one_sweep_retires_several_batches_of_reservations_and_leaves_the_others",),
    ),
    Mutant(
        "one sweep forgets one batch of deliveries",
        "webhooks",
        "worker/sweepers/webhooks.py",
        "            if gone < BATCH_MAX:\n",
        "            if gone <= BATCH_MAX:\n",
        (f"{_SWEEPS}::test_one_sweep_forgets_several_batches_of_deliveries",),
    ),
    Mutant(
        "each round looks for lost workflows from the beginning",
        "worker",
        "worker/sweepers/lost_workflows.py",
        "self._after = (waiters[-1].waits_until, waiters[-1].allocation_id) if full else BEGINNING",
        "self._after = BEGINNING",
        (f"{_SWEEPS}::test_lost_workflows_are_looked_for_behind_the_last_one_and_from_the_beginning_again",),
    ),
    Mutant(
        "lost workflows are never looked for from the beginning again",
        "worker",
        "worker/sweepers/lost_workflows.py",
        "        full = len(waiters) == self._limit\n",
        "        full = len(waiters) > 0\n",
        (f"{_SWEEPS}::test_lost_workflows_are_looked_for_behind_the_last_one_and_from_the_beginning_again",),
    ),
    Mutant(
        "each round of the reconciler begins with the first node",
        "nodes",
        "worker/sweepers/reconciliation.py",
        "        self._after = found.last_node or FIRST_NODE\n",
        "        self._after = FIRST_NODE\n",
        (f"{_SWEEPS}::test_the_reconciler_continues_behind_the_last_node_and_begins_again",),
    ),
    Mutant(
        "the reconciler stops behind its last full round",
        "nodes",
        "orchestrator/nodes/inventory_queries.py",
        "nodes[-1] if len(nodes) == nodes_max else None",
        "nodes[-1]",
        (f"{_SWEEPS}::test_the_reconciler_continues_behind_the_last_node_and_begins_again",),
    ),
]
TEMPORAL: list[Mutant] = [
    Mutant(
        "every error of Temporal means that a workflow is absent",
        "worker",
        "worker/workflows/starting.py",
        'if error.status is RPCStatusCode.NOT_FOUND and "namespace" not in',
        'if "namespace" not in',
        (f"{_SWEEPS}::test_only_not_found_means_that_a_workflow_is_absent",),
    ),
    Mutant(
        "a missing namespace means that a workflow is absent",
        "worker",
        "worker/workflows/starting.py",
        ' and "namespace" not in error.message.lower():',
        ":",
        (f"{_SWEEPS}::test_a_missing_namespace_does_not_mean_that_a_workflow_is_absent",),
    ),
    Mutant(
        "every error of Temporal means that a workflow is closed",
        "worker",
        "worker/workflows/starting.py",
        "            if error.status is RPCStatusCode.NOT_FOUND:\n                return False\n            raise\n",
        "            return False\n",
        (f"{_SWEEPS}::test_only_not_found_means_that_a_workflow_is_absent",),
    ),
]
