"""Mutations of tenant filters, batch bounds, secrets, prices, fingerprints and the checks of `berth verify`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant


def _foreign(*operations: str) -> tuple[str, ...]:
    """The generated test of another tenant's ids, for these operations."""
    name = "test_existing_ids_of_another_tenant_are_answered_as_ids_that_never_existed"
    return tuple(f"tests/api/test_foreign_ids.py::{name}[{operation}]" for operation in operations)


def _pages(case: str) -> tuple[str, ...]:
    """The test of a list's pages."""
    return (f"tests/api/test_pages.py::test_pages_are_the_whole_list[{case}]",)


_STREAMS = "tests/log/test_filtered_streams.py"

_TENANT_FILTERS = [
    Mutant(
        "a reservation is read whatever its tenant", "reservations", "orchestrator/store/reservation_rows.py",
        "where r.id = :id and (cast(:tenant_id as uuid) is null or r.tenant_id = :tenant_id)",
        "where r.id = :id and (cast(:tenant_id as uuid) is null or true)",
        _foreign("GET /api/v1/reservations/{reservation_id}"),
    ),
    Mutant(
        "a reservation is cancelled whatever its tenant", "reservations", "orchestrator/store/reservations.py",
        "select from reservations where id = :id and (cast(:tenant_id as uuid) is null or tenant_id = :tenant_id)",
        "select from reservations where id = :id and (cast(:tenant_id as uuid) is null or true)",
        _foreign("POST /api/v1/reservations/{reservation_id}/cancel"),
    ),
    Mutant(
        "the list of reservations begins with lower tenants", "reservations", "orchestrator/store/reservation_rows.py",
        "where (r.tenant_id, r.position) > (:tenant_id, :after) and r.tenant_id <= :tenant_id and r.position > 0",
        "where r.position > :after and r.tenant_id <= :tenant_id and r.position > 0",
        _foreign("GET /api/v1/reservations"),
    ),
    Mutant(
        "an allocation is read whatever its tenant", "allocations", "orchestrator/store/allocation_rows.py",
        "where a.id = :id and (cast(:tenant_id as uuid) is null or a.tenant_id = :tenant_id)",
        "where a.id = :id and (cast(:tenant_id as uuid) is null or true)",
        _foreign("GET /api/v1/allocations/{allocation_id}"),
    ),
    Mutant(
        "an allocation is released whatever its tenant", "allocations", "orchestrator/store/allocations.py",
        "where id = :allocation_id and (cast(:tenant_id as uuid) is null or tenant_id = :tenant_id))",
        "where id = :allocation_id and (cast(:tenant_id as uuid) is null or true))",
        _foreign("POST /api/v1/allocations/{allocation_id}/release"),
    ),
    Mutant(
        "the list of allocations begins with lower tenants", "allocations", "orchestrator/store/allocation_rows.py",
        'place="(a.tenant_id, a.id) > (:tenant_id, :after) and a.tenant_id <= :tenant_id"',
        'place="a.id > :after and a.tenant_id <= :tenant_id"',
        _foreign("GET /api/v1/allocations"),
    ),
    Mutant(
        "an SSH key is read whatever its tenant", "allocations", "orchestrator/store/ssh_keys.py",
        'f"select {_COLUMNS} from ssh_keys where id = :id and tenant_id = :tenant_id"',
        'f"select {_COLUMNS} from ssh_keys where id = :id and :tenant_id is not null"',
        _foreign("GET /api/v1/ssh-keys/{key_id}"),
    ),
    Mutant(
        "an SSH key is deleted whatever its tenant", "allocations", "orchestrator/store/ssh_keys.py",
        '"delete from ssh_keys where id = :id and tenant_id = :tenant_id"',
        '"delete from ssh_keys where id = :id and cast(:tenant_id as uuid) is not null"',
        _foreign("DELETE /api/v1/ssh-keys/{key_id}"),
    ),
    Mutant(
        "another tenant's SSH keys are listed", "allocations", "orchestrator/store/ssh_keys.py",
        'ssh_keys where tenant_id = :tenant_id and id > :after order by id limit :limit"',
        'ssh_keys where cast(:tenant_id as uuid) is not null and id > :after order by id limit :limit"',
        _foreign("GET /api/v1/ssh-keys"),
    ),
    Mutant(
        "a reservation's template takes another tenant's SSH key", "reservations", "orchestrator/store/ssh_keys.py",
        "where id = any (:ids) and tenant_id = :tenant_id",
        "where id = any (:ids) and cast(:tenant_id as uuid) is not null",
        _foreign("POST /api/v1/reservations"),
    ),
    Mutant(
        "a turn-over takes another tenant's SSH key", "allocations", "migrations/sql/0003_turning_over.sql",
        "k.id = any (item.ssh_key_ids) and k.tenant_id = claim.tenant_id)",
        "k.id = any (item.ssh_key_ids))",
        _foreign("POST /api/v1/allocations"),
    ),
    Mutant(
        "a create takes another tenant's SSH key", "placement", "migrations/sql/0003_windows.sql",
        "k.id = any (i.ssh_key_ids) and k.tenant_id = i.tenant_id)",
        "k.id = any (i.ssh_key_ids))",
        _foreign("POST /api/v1/allocations"),
    ),
    Mutant(
        "a webhook is read whatever its tenant", "webhooks", "orchestrator/store/webhooks.py",
        '_READ = f"select {_COLUMNS} from webhooks w where w.id = :id and {_OWN}"',
        '_READ = f"select {_COLUMNS} from webhooks w where w.id = :id and ({_OWN} or true)"',
        _foreign("GET /api/v1/webhooks/{webhook_id}"),
    ),
    Mutant(
        "a webhook is changed whatever its tenant", "webhooks", "orchestrator/store/webhooks.py",
        '_LOCK = f"select w.id from webhooks w where w.id = :id and {_OWN} for no key update"',
        '_LOCK = f"select w.id from webhooks w where w.id = :id and ({_OWN} or true) for no key update"',
        _foreign("PATCH /api/v1/webhooks/{webhook_id}"),
    ),
    Mutant(
        "another tenant's webhooks are listed", "webhooks", "orchestrator/store/webhooks.py",
        '_LIST = f"select {_COLUMNS} from webhooks w where {_OWN} and',
        '_LIST = f"select {_COLUMNS} from webhooks w where ({_OWN} or true) and',
        _foreign("GET /api/v1/webhooks"),
    ),
    Mutant(
        "an existing delivery is read without its webhook's tenant", "webhooks", "orchestrator/queries/webhooks.py",
        "        await webhooks.read_webhook(reading, tenant_id, webhook_id)\n"
        "        return await webhook_deliveries.read_delivery(",
        "        return await webhook_deliveries.read_delivery(",
        _foreign("GET /api/v1/webhooks/{webhook_id}/deliveries/{number}"),
    ),
    Mutant(
        "existing deliveries are listed without their webhook's tenant", "webhooks", "orchestrator/queries/webhooks.py",
        "        await webhooks.read_webhook(reading, tenant_id, webhook_id)\n"
        "        return await webhook_deliveries.list_deliveries(",
        "        return await webhook_deliveries.list_deliveries(",
        _foreign("GET /api/v1/webhooks/{webhook_id}/deliveries"),
    ),
    Mutant(
        "a delivery is replayed whatever its webhook's tenant", "webhooks", "orchestrator/commands/replay_delivery.py",
        "        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)\n", "",
        _foreign("POST /api/v1/webhooks/{webhook_id}/deliveries/{number}/replay"),
    ),
    Mutant(
        "failed deliveries are replayed whatever their webhook's tenant", "webhooks",
        "orchestrator/commands/replay_failed_deliveries.py",
        "        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)\n", "",
        _foreign("POST /api/v1/webhooks/{webhook_id}/replay"),
    ),
    Mutant(
        "a test message is sent whatever the webhook's tenant", "webhooks", "orchestrator/commands/send_test_message.py",
        "        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)\n", "",
        _foreign("POST /api/v1/webhooks/{webhook_id}/test"),
    ),
    Mutant(
        "a stored operation is told to every tenant", "operations", "orchestrator/store/asking.py",
        "created_at, retire_after\nfrom operations where scope = :scope and key = :key\n",
        "created_at, retire_after\nfrom operations where cast(:scope as uuid) is not null and key = :key\n",
        ("tests/api/test_foreign_ids.py::test_two_tenants_with_the_same_operation_key_are_each_told_of_their_own",),
    ),
    Mutant(
        "operations of all tenants share one scope", "operations", "orchestrator/api/operation_keys.py",
        "        scope=principal.scope,\n", "        scope=uuid.UUID(int=1),\n",
        _foreign("POST /api/v1/ssh-keys", "POST /api/v1/webhooks", "POST /v1/commit"),
    ),
    Mutant(
        "a subscription is removed whatever its scope", "notifications", "orchestrator/store/subscriptions.py",
        '_DELETE = "delete from notification_subscriptions where scope = :scope and name = :name returning version"',
        '_DELETE = "delete from notification_subscriptions where cast(:scope as uuid) is not null and name = :name'
        ' returning version"',
        _foreign("DELETE /api/v1/notifications/subscriptions/{name}"),
    ),
    Mutant(
        "subscriptions of all scopes are listed", "notifications", "orchestrator/store/subscriptions.py",
        "where scope = :scope and kept_until > clock_timestamp() order by name",
        "where cast(:scope as uuid) is not null and kept_until > clock_timestamp() order by name",
        _foreign("GET /api/v1/notifications/subscriptions"),
    ),
    Mutant(
        "usage of all tenants is listed", "billing", "orchestrator/store/usage.py",
        "and (cast(:tenant_id as uuid) is null or a.tenant_id = :tenant_id)",
        "and (cast(:tenant_id as uuid) is null or true)",
        _foreign("GET /api/v1/usage"),
    ),
    Mutant(
        "a tenant may name another tenant", "tenants", "orchestrator/api/tenant/allocation_reads.py",
        "    if named not in (None, caller.tenant_id):\n", "    if named is not None and False:\n",
        ("tests/api/test_usage.py::test_pages_and_whose",),
    ),
    Mutant(
        "a key is read whatever its namespace", "keyvalue", "orchestrator/store/keys.py",
        "where k.namespace = :namespace and k.key = :key and k.value is not null",
        "where cast(:namespace as uuid) is not null and k.key = :key and k.value is not null",
        _foreign("GET /v1/kv/{key}"),
    ),
    Mutant(
        "a range is read whatever its namespace", "keyvalue", "orchestrator/store/keys.py",
        "        select * from kv_keys\n        where namespace = :namespace and key >= :begin",
        "        select * from kv_keys\n        where cast(:namespace as uuid) is not null and key >= :begin",
        _foreign("GET /v1/kv"),
    ),
    Mutant(
        "a transaction is found whatever its tenant", "keyvalue", "orchestrator/store/keys.py",
        "operation_key = :key and tenant_id is not distinct from cast(:tenant_id as uuid)\n",
        "operation_key = :key and coalesce(cast(:tenant_id as uuid), tenant_id) is not null\n",
        _foreign("GET /v1/status"),
    ),
    Mutant(
        "a retention policy is deleted whatever its scope", "log", "orchestrator/store/retention.py",
        "delete from retention_policies where scope = :scope and policy_id = :policy_id",
        "delete from retention_policies where cast(:scope as uuid) is not null and policy_id = :policy_id",
        _foreign("DELETE /v1/retention/{policy_id}"),
    ),
    Mutant(
        "retention policies of all scopes are listed", "log", "orchestrator/store/retention.py",
        "where p.scope = :scope and (cast(:policy_id as text) is null or p.policy_id = :policy_id)",
        "where cast(:scope as uuid) is not null and (cast(:policy_id as text) is null or p.policy_id = :policy_id)",
        _foreign("GET /v1/retention", "GET /v1/retention/{policy_id}"),
    ),
    Mutant(
        "a filtered stream carries the events of every tenant", "log", "orchestrator/api/log/frames.py",
        "if (self.tenant_id is None or event.tenant_id == self.tenant_id)\n                and",
        "if True and",
        (_STREAMS,),
    ),
    Mutant(
        "a filtered page of the log has the events of every tenant", "log", "orchestrator/store/feed_rows.py",
        'which = ("" if tenant_id is None else _OF_TENANT) +',
        'which = ("" if tenant_id is None or not chosen.takes_all else _OF_TENANT) +',
        (_STREAMS,),
    ),
]  # fmt: skip

_BATCHES = "tests/log/test_more_than_one_batch.py"
_BEHIND = "tests/webhooks/test_far_behind.py"
_SWEEPS = "tests/worker/test_sweeps_of_many.py"

_BATCH_BOUNDS = [
    Mutant(
        "the tail takes what it has read for all there is", "log", "orchestrator/api/log/feed.py",
        "before = Head(scan.scanned_to, head.leader_id, head.accepted_leader_id)", "before = head",
        (_BATCHES,),
    ),
    Mutant(
        "one statement sequences all there is", "log", "orchestrator/commands/sequence_events.py",
        "        if moved < BATCH_MAX:\n", "        if moved <= BATCH_MAX:\n",
        (f"{_BATCHES}::test_the_version_includes_more_events_than_one_statement_sequences",),
    ),
    Mutant(
        "a webhook's position moves to the head after a full scan", "webhooks", "orchestrator/store/webhook_dispatch.py",
        "case when r.events < :batch then r.head else r.last end", "r.head",
        (_BEHIND,),
    ),
    Mutant(
        "a dispatcher's round never has more to write down", "webhooks", "worker/webhooks/dispatching.py",
        "return advanced.unfinished > 0 or advanced.moved == WEBHOOKS_MAX", "return False",
        (_BEHIND,),
    ),
    Mutant(
        "a dispatcher's round forgets webhooks that it did not reach", "webhooks", "worker/webhooks/dispatching.py",
        "return advanced.unfinished > 0 or advanced.moved == WEBHOOKS_MAX", "return advanced.unfinished > 0",
        (_BEHIND,),
    ),
    Mutant(
        "a list has one page", "tenants", "orchestrator/api/paging.py",
        "    more = len(found) > limit\n", "    more = False\n", _pages("/api/v1/ssh-keys "),
    ),
    Mutant(
        "a page begins behind the item that was read ahead", "tenants", "orchestrator/api/paging.py",
        "cursor_after(kind, place(items[-1]))", "cursor_after(kind, place(found[-1]))", _pages("/api/v1/ssh-keys "),
    ),
    Mutant(
        "a list by id does not read ahead", "tenants", "orchestrator/api/paging.py",
        "place_after(query.cursor, kind, UUID, FIRST_ID), query.limit + 1",
        "place_after(query.cursor, kind, UUID, FIRST_ID), query.limit", _pages("/api/v1/ssh-keys "),
    ),
    Mutant(
        "a list by name does not read ahead", "catalogue", "orchestrator/api/paging.py",
        'place_after(query.cursor, kind, bounded_text, ""), query.limit + 1',
        'place_after(query.cursor, kind, bounded_text, ""), query.limit', _pages("/api/v1/skus "),
    ),
    Mutant(
        "the timeline repeats an entry", "allocations", "orchestrator/store/allocation_rows.py",
        "from allocation_timeline where allocation_id = :id and id > :after order by id limit :limit",
        "from allocation_timeline where allocation_id = :id and id >= :after order by id limit :limit", _pages("/api/v1/allocations/{allocation_id}/timeline "),
    ),
    Mutant(
        "deliveries repeat a number", "webhooks", "orchestrator/store/webhook_deliveries.py",
        "d.number < :before and", "d.number <= :before and", _pages("/api/v1/webhooks/{webhook_id}/deliveries "),
    ),
    Mutant(
        "usage by allocation repeats a line", "billing", "orchestrator/store/usage.py",
        "from costs where id::text > :after", "from costs where id::text >= :after", _pages("/api/v1/usage {'by': 'allocation'}"),
    ),
    Mutant(
        "usage by day repeats a line", "billing", "orchestrator/store/usage.py",
        "having to_char(day, 'YYYY-MM-DD') || ' ' || tenant_id > :after",
        "having to_char(day, 'YYYY-MM-DD') || ' ' || tenant_id >= :after", _pages("/api/v1/usage {'by': 'day'}"),
    ),
    Mutant(
        "usage by tenant repeats a line", "billing", "orchestrator/store/usage.py",
        "having tenant_id::text > :after", "having tenant_id::text >= :after", _pages("/api/v1/usage {'by': 'tenant'}"),
    ),
    Mutant(
        "the audit repeats an entry", "audit", "orchestrator/store/audit.py",
        "from audit where id > :after and", "from audit where id >= :after and", _pages("/api/v1/admin/audit "),
    ),
    Mutant(
        "one sweep retires one batch of operations", "operations", "worker/sweepers/retirement.py",
        "        if retired < BATCH_MAX:\n", "        if retired <= BATCH_MAX:\n", (f"{_SWEEPS}::test_one_sweep_retires_several_batches_of_operations",),
    ),
    Mutant(
        "one sweep retires one batch of reservations", "reservations", "worker/sweepers/reservations.py",
        "        if retired < limit:\n", "        if retired <= limit:\n", (f"{_SWEEPS}::test_one_sweep_retires_several_batches_of_reservations_and_leaves_the_others",),
    ),
    Mutant(
        "one sweep forgets one batch of deliveries", "webhooks", "worker/sweepers/webhooks.py",
        "            if gone < BATCH_MAX:\n", "            if gone <= BATCH_MAX:\n", (f"{_SWEEPS}::test_one_sweep_forgets_several_batches_of_deliveries",),
    ),
    Mutant(
        "each round looks for lost workflows from the beginning", "worker", "worker/sweepers/lost_workflows.py",
        "self._after = (waiters[-1].waits_until, waiters[-1].allocation_id) if full else BEGINNING",
        "self._after = BEGINNING", (f"{_SWEEPS}::test_lost_workflows_are_looked_for_behind_the_last_one_and_from_the_beginning_again",),
    ),
    Mutant(
        "lost workflows are never looked for from the beginning again", "worker", "worker/sweepers/lost_workflows.py",
        "        full = len(waiters) == self._limit\n", "        full = len(waiters) > 0\n", (f"{_SWEEPS}::test_lost_workflows_are_looked_for_behind_the_last_one_and_from_the_beginning_again",),
    ),
    Mutant(
        "each round of the reconciler begins with the first node", "nodes", "worker/sweepers/reconciliation.py",
        "        self._after = found.last_node or FIRST_NODE\n", "        self._after = FIRST_NODE\n", (f"{_SWEEPS}::test_the_reconciler_continues_behind_the_last_node_and_begins_again",),
    ),
    Mutant(
        "the reconciler stops behind its last full round", "nodes", "orchestrator/queries/compare_inventories.py",
        "nodes[-1] if len(nodes) == nodes_max else None", "nodes[-1]", (f"{_SWEEPS}::test_the_reconciler_continues_behind_the_last_node_and_begins_again",),
    ),
]  # fmt: skip
_TEMPORAL = [
    Mutant(
        "every error of Temporal means that a workflow is absent", "worker", "worker/workflows/starting.py",
        'if error.status is RPCStatusCode.NOT_FOUND and "namespace" not in', 'if "namespace" not in', (f"{_SWEEPS}::test_only_not_found_means_that_a_workflow_is_absent",),
    ),
    Mutant(
        "a missing namespace means that a workflow is absent", "worker", "worker/workflows/starting.py",
        ' and "namespace" not in error.message.lower():', ":", (f"{_SWEEPS}::test_a_missing_namespace_does_not_mean_that_a_workflow_is_absent",),
    ),
    Mutant(
        "every error of Temporal means that a workflow is closed", "worker", "worker/workflows/starting.py",
        "            if error.status is RPCStatusCode.NOT_FOUND:\n                return False\n            raise\n",
        "            return False\n", (f"{_SWEEPS}::test_only_not_found_means_that_a_workflow_is_absent",),
    ),
]  # fmt: skip
_SECRET_TESTS = "tests/api/test_secrets.py"
_SECRETS = [
    Mutant(
        "failed statements are logged with their parameters", "operations", "orchestrator/store/database.py",
        "            hide_parameters=True,", "            hide_parameters=False,", (_SECRET_TESTS,),
    ),
    Mutant(
        "all callers seal under one key", "tenants", "orchestrator/api/writes.py",
        "    return Sealer(bearer.strip())\n", '    return Sealer("berth")\n', (_SECRET_TESTS,),
    ),
    Mutant(
        "stored secrets are not sealed", "tenants", "orchestrator/trust/sealing.py",
        "        return base64.urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, secret.encode(), None)).decode()\n",
        "        return secret\n", (_SECRET_TESTS,),
    ),
    Mutant(
        "every sealer has one key", "tenants", "orchestrator/trust/sealing.py",
        "derive(bearer.encode()))", 'derive(b"berth"))', (_SECRET_TESTS,),
    ),
    Mutant(
        "keys of webhooks are sealed under a constant", "webhooks", "orchestrator/trust/webhook_keys.py",
        "AESGCM(signer.derive_key(_PURPOSE))", "AESGCM(bytes(32))", (_SECRET_TESTS,),
    ),
    Mutant(
        "an API key is written into the audit", "tenants", "orchestrator/commands/create_api_key.py",
        '"tenant_id": tenant_id, "prefix": prefix}', '"tenant_id": tenant_id, "prefix": key}', (_SECRET_TESTS,),
    ),
    Mutant(
        "the log shows query parameters", "log", "orchestrator/api/edge.py",
        'method=scope["method"], path=scope["path"], status=status,',
        'method=scope["method"], path=scope["path"], query=scope["query_string"].decode(), status=status,',
        (_SECRET_TESTS,),
    ),
]  # fmt: skip
_LIMITS = "tests/api/test_fingerprints_and_limits.py"
_REST = [
    Mutant(
        "query parameters are no part of a fingerprint", "operations", "orchestrator/api/operation_keys.py",
        'return {"body": document, "query": query} if query else document', "return document",
        (f"{_LIMITS}::test_the_query_is_part_of_a_writes_fingerprint",),
    ),
    Mutant(
        "a body of exactly the limit is refused by its length", "operations", "orchestrator/api/edge.py",
        "int(length) > self._body_bytes_max", "int(length) >= self._body_bytes_max",
        (f"{_LIMITS}::test_a_body_may_have_exactly_the_limit_and_no_byte_more",),
    ),
    Mutant(
        "a body of exactly the limit is refused when it has arrived", "operations", "orchestrator/api/edge.py",
        "if received > self._body_bytes_max:", "if received >= self._body_bytes_max:",
        (f"{_LIMITS}::test_a_body_may_have_exactly_the_limit_and_no_byte_more",),
    ),
    Mutant(
        "a body without a length has no limit", "operations", "orchestrator/api/edge.py",
        "if received > self._body_bytes_max:", "if received > self._body_bytes_max + 1:",
        (f"{_LIMITS}::test_a_body_may_have_exactly_the_limit_and_no_byte_more",),
    ),
    Mutant(
        "every refusal is stored", "operations", "orchestrator/execution.py",
        "    if not refusal.business:\n        raise refusal\n", "", (_LIMITS,),
    ),
    Mutant(
        "every refusal of a batch of creates is stored", "placement", "orchestrator/commands/create_allocations.py",
        "storable = [index for index, refusal in refusals.items() if refusal.business]", "storable = list(refusals)",
        (_LIMITS,),
    ),
    Mutant(
        "every refusal of a batch of holds is stored", "reservations", "orchestrator/commands/hold_resources.py",
        "if isinstance(result, Problem) and result.business", "if isinstance(result, Problem)", (_LIMITS,),
    ),
    Mutant(
        "overload is an outcome of business", "operations", "orchestrator/domain/errors.py",
        'status, code, title = 503, "overloaded", "Overloaded"',
        'status, code, title, business = 503, "overloaded", "Overloaded", True', (_LIMITS,),
    ),
    Mutant(
        "usage charges the newest price", "billing", "orchestrator/store/usage.py",
        "p.sku = a.sku and p.price_version = a.price_version",
        "p.sku = a.sku and p.price_version = (select max(v.price_version) from sku_prices v where v.sku = a.sku)",
        (f"{_LIMITS}::test_usage_after_a_price_change_charges_each_allocation_its_own_price",),
    ),
]  # fmt: skip


def _branch(violation: str) -> tuple[str, ...]:
    """The test of a violation that one operand finds."""
    return (f"tests/berth/test_every_branch.py::test_a_violation_that_one_operand_finds_is_found[{violation}]",)


_VERIFICATION = [
    Mutant(
        "verify takes a claim on a missing node", "verification", "berth/verification/p1_one_holder.py",
        "(n.id is null or not int8multirange", "(not int8multirange", _branch("a_node_that_is_not_there"),
    ),
    Mutant(
        "verify takes a reservation without a key", "verification", "berth/verification/p2_reservations.py",
        "or r.operation_key = '' or octet_length", "or octet_length", _branch("an_old_reservation_without_a_key"),
    ),
    Mutant(
        "verify takes a hold with occupied units", "verification", "berth/verification/p2_reservations.py",
        " or c.occupied or c.occupied_from is not null)", " or c.occupied_from is not null)", _branch("a_hold_whose_units_are_occupied"),
    ),
    Mutant(
        "verify takes a chain that begins before the log", "verification", "berth/verification/p3_one_order.py",
        "(prev_version >= oldest or oldest = 1)", "(prev_version >= oldest)", _branch("a_chain_that_begins_before_a_whole_log"),
    ),
    Mutant(
        "verify takes an active allocation that occupies nothing", "verification",
        "berth/verification/p6_proven_cleanup.py",
        "(c.closed_at is not null or not c.occupied)", "(c.closed_at is not null)", _branch("an_active_allocation_that_occupies_nothing"),
    ),
    Mutant(
        "verify takes a ledger without a balance", "verification", "berth/verification/billing.py",
        "where b.tenant_id is null or b.settled_micro_units <>", "where b.settled_micro_units <>", _branch("a_ledger_without_a_balance"),
    ),
    Mutant(
        "verify takes a window that waits for ever", "verification", "berth/verification/p9_complete_waits.py",
        "                or (state = 'confirmed' and waits_until is null and ends_at is not null)\n", "", _branch("a_window_that_waits_for_ever"),
    ),
]  # fmt: skip

MUTANTS: list[Mutant] = [*_TENANT_FILTERS, *_BATCH_BOUNDS, *_TEMPORAL, *_SECRETS, *_REST, *_VERIFICATION]
