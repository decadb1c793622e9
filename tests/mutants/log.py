"""Mutants of these nouns: log, keyvalue and notifications."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import check, foreign

MUTANTS: list[Mutant] = [
    Mutant(
        "a retention policy is deleted whatever its scope",
        "log",
        "orchestrator/log/store/retention.py",
        "delete from retention_policies where scope = :scope and policy_id = :policy_id",
        "delete from retention_policies where cast(:scope as uuid) is not null and policy_id = :policy_id",
        (foreign("DELETE /v1/retention/{policy_id}"),),
    ),
    Mutant(
        "retention policies of all scopes are listed",
        "log",
        "orchestrator/log/store/retention.py",
        "where p.scope = :scope and (cast(:policy_id as text) is null or p.policy_id = :policy_id)",
        ("where cast(:scope as uuid) is not null and (cast(:policy_id as text) is null or p.policy_id = :policy_id)"),
        (
            foreign("GET /v1/retention"),
            foreign("GET /v1/retention/{policy_id}"),
        ),
    ),
    Mutant(
        "a filtered stream carries the events of every tenant",
        "log",
        "orchestrator/log/feed/frames.py",
        ("if (self.tenant_id is None or event.tenant_id == self.tenant_id)\n                and"),
        "if True and",
        ("tests/log/test_filtered_streams.py",),
    ),
    Mutant(
        "a filtered page of the log has the events of every tenant",
        "log",
        "orchestrator/log/store/feed.py",
        'which = ("" if tenant_id is None else _OF_TENANT) +',
        'which = ("" if tenant_id is None or not chosen.takes_all else _OF_TENANT) +',
        ("tests/log/test_filtered_streams.py",),
    ),
    Mutant(
        "the tail takes what it has read for all there is",
        "log",
        "orchestrator/log/feed/feed.py",
        "before = Head(scan.scanned_to, head.leader_id, head.accepted_leader_id)",
        "before = head",
        ("tests/log/test_more_than_one_batch.py",),
    ),
    Mutant(
        "one statement sequences all there is",
        "log",
        "orchestrator/log/commands/sequence.py",
        "        if moved < BATCH_MAX:\n",
        "        if moved <= BATCH_MAX:\n",
        (
            (
                "tests/log/test_more_than_one_batch.py::test_the_version_includes_more_events_than_one_stat"
                "ement_sequences"
            ),
        ),
    ),
    Mutant(
        "a key is read whatever its namespace",
        "keyvalue",
        "orchestrator/keyvalue/store/keys.py",
        "where k.namespace = :namespace and k.key = :key and k.value is not null",
        "where cast(:namespace as uuid) is not null and k.key = :key and k.value is not null",
        (foreign("GET /v1/kv/{key}"),),
    ),
    Mutant(
        "a range is read whatever its namespace",
        "keyvalue",
        "orchestrator/keyvalue/store/keys.py",
        ("        select * from kv_keys\n        where namespace = :namespace and key >= :begin"),
        ("        select * from kv_keys\n        where cast(:namespace as uuid) is not null and key >= :begin"),
        (foreign("GET /v1/kv"),),
    ),
    Mutant(
        "a transaction is found whatever its tenant",
        "keyvalue",
        "orchestrator/keyvalue/store/keys.py",
        "operation_key = :key and tenant_id is not distinct from cast(:tenant_id as uuid)\n",
        "operation_key = :key and coalesce(cast(:tenant_id as uuid), tenant_id) is not null\n",
        (foreign("GET /v1/status"),),
    ),
    Mutant(
        "a commit for another leader is applied",
        "keyvalue",
        "migrations/functions/keyvalue/kv_commit.sql",
        "if item.leader_id is not null and item.leader_id <> leader then",
        "if false then",
        ("tests/transactions/test_commits.py::test_another_leader_commits_nothing",),
    ),
    Mutant(
        "a version in the future is accepted",
        "keyvalue",
        "migrations/functions/keyvalue/kv_commit.sql",
        "if told is null and item.version_max > head then",
        "if false then",
        ("tests/transactions/test_bad_input.py::test_what_cannot_be_read_is_400_and_changes_nothing",),
    ),
    Mutant(
        "a changed key satisfies its precondition",
        "keyvalue",
        "migrations/functions/keyvalue/kv_conflicts.sql",
        "and k.key = one.lo and k.mark >= bound",
        "and k.key = one.lo and k.mark > bound",
        ("tests/transactions/test_commits.py::test_a_point_read_sees_writes_and_deletes_of_its_key_only",),
    ),
    Mutant(
        "a changed range satisfies its precondition",
        "keyvalue",
        "migrations/functions/keyvalue/kv_conflicts.sql",
        "and k.mark >= $4",
        "and k.mark >= $4 and false",
        ("tests/transactions/test_commits.py::test_a_range_read_sees_what_comes_and_goes_inside_it",),
    ),
    Mutant(
        "a namespace has no bound on keys",
        "keyvalue",
        "migrations/functions/keyvalue/kv_commit.sql",
        "if change.keys > 0 and space.keys + change.keys > item.keys_max",
        "if false",
        ("tests/transactions/test_bad_input.py::test_a_full_namespace_takes_nothing_more_and_gives_back",),
    ),
    Mutant(
        "a key has no bound",
        "keyvalue",
        "migrations/schema/keyvalue.sql",
        "check (octet_length(key) between 1 and 2048)",
        "check (octet_length(key) >= 1)",
        (check("key_bounded"),),
    ),
    Mutant(
        "a subscription is removed whatever its scope",
        "notifications",
        "orchestrator/notifications/store.py",
        ('_DELETE = "delete from notification_subscriptions where scope = :scope and name = :name returning version"'),
        (
            '_DELETE = "delete from notification_subscriptions where cast(:scope as uuid) is not null '
            'and name = :name returning version"'
        ),
        (foreign("DELETE /api/v1/notifications/subscriptions/{name}"),),
    ),
    Mutant(
        "subscriptions of all scopes are listed",
        "notifications",
        "orchestrator/notifications/store.py",
        "where scope = :scope and kept_until > clock_timestamp() order by name",
        "where cast(:scope as uuid) is not null and kept_until > clock_timestamp() order by name",
        (foreign("GET /api/v1/notifications/subscriptions"),),
    ),
    Mutant(
        "a position goes back",
        "notifications",
        "orchestrator/notifications/store.py",
        "set version = greatest(s.version, l.version),",
        "set version = l.version,",
        ("tests/log/test_notifications.py::test_a_subscription_goes_on_behind_what_was_acknowledged",),
    ),
    Mutant(
        "a known subscription begins anew",
        "notifications",
        "orchestrator/notifications/store.py",
        "version = begin if version is None else version",
        "version = begin",
        ("tests/log/test_notifications.py::test_a_subscription_goes_on_behind_what_was_acknowledged",),
    ),
    Mutant(
        "subscriptions have no bound",
        "notifications",
        "orchestrator/notifications/store.py",
        ">= subscriptions_max:",
        "> subscriptions_max:",
        ("tests/log/test_notifications.py::test_subscriptions_are_bounded_and_can_be_removed",),
    ),
    Mutant(
        "a subscription begins behind truncated events",
        "notifications",
        "orchestrator/notifications/store.py",
        "if (await find_truncation(tx, version, tenant_id))[1]:",
        "if False:",
        ("tests/log/test_notifications.py::test_what_was_truncated_is_gone_and_said_so",),
    ),
    Mutant(
        "the last acknowledgement is lost",
        "notifications",
        "orchestrator/notifications/sockets.py",
        "            await self._keep_last()\n",
        "",
        (("tests/log/test_notifications.py::test_what_is_acknowledged_last_is_kept_although_the_client_is_gone"),),
    ),
    Mutant(
        "a name has no bound",
        "notifications",
        "migrations/schema/notifications.sql",
        "check (length(name) between 1 and 64)",
        "check (length(name) >= 1)",
        (check("notification_subscriptions_name_check"),),
    ),
]
