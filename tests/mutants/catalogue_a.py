"""Mutations of tenant filters, batch bounds, secrets, prices, fingerprints and the checks of `berth verify`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant


def _foreign(*operations: str) -> tuple[str, ...]:
    """The generated test of another tenant's ids, for these operations."""
    name = "test_existing_ids_of_another_tenant_are_answered_as_ids_that_never_existed"
    return tuple(f"tests/api/test_foreign_ids.py::{name}[{operation}]" for operation in operations)


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
        "from operations where scope = :scope and key = :key",
        "from operations where cast(:scope as uuid) is not null and key = :key and status < 300",
        _foreign("GET /api/v1/operations/{key}"),
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
        _foreign("GET /api/v1/usage", "GET /api/v1/allocations", "GET /api/v1/reservations"),
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

MUTANTS: list[Mutant] = [*_TENANT_FILTERS]
