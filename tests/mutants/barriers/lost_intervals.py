"""Mutants of lost intervals: what a restore exports, does again, skips, adopts, and says to tenants."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GATE = "tests/restores/test_gate.py"
_SEQUENCES = "tests/restores/test_sequences.py"
_EXPORT = "tests/restores/test_export.py"
_STORY = f"{_EXPORT}::test_what_was_ended_or_revoked_in_the_lost_interval_is_so_after_the_restore"
_NOTIFIED = f"{_GATE}::test_every_tenant_and_the_operators_are_notified_with_the_interval_once"
_IDENTITY = "tests/restores/test_identity.py"
_ADOPTED = f"{_IDENTITY}::test_a_certificate_of_the_lost_interval_is_adopted_unless_the_node_was_revoked_in_it"
_CANCELLED = "tests/restores/test_cancelled.py::test_a_cancelled_reservation_never_starts_again"
_RESTORED = "tests/sites/renting/test_restored.py"
_RELEASE = f"{_RESTORED}::test_a_release_wipes_no_machine_before_an_operator_says_so"
_BEFORE = f"{_RESTORED}::test_a_run_of_before_goes_on_by_no_step"
_SKIPS = "tests/outbox_relay/test_rebuilding.py::test_versions_that_postgres_lost_are_never_given_again"
_REASON = f"{_EXPORT}::test_a_restore_whose_nats_is_lost_too_needs_a_reason"


def _mutant(name: str, noun: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"restore: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "run goes on without an export",
        "database",
        "berth/cli/deployment/restore/running.py",
        "    if not found.is_exported:\n",
        "    if False:\n",
        _STORY,
    ),
    _mutant(
        "it is closed without an export",
        "database",
        "migrations/functions/restores/restore_close.sql",
        "if closing.exported_at is null and closing.without_export is null then",
        "if false then",
        _REASON,
    ),
    _mutant(
        "the stream is rebuilt before the export",
        "relay",
        "outbox_relay/rebuilding.py",
        "        await _require_export(reader, link)\n",
        "",
        _STORY,
    ),
    _mutant(
        "an export of a rebuilt stream replaces the export",
        "database",
        "migrations/functions/restores/restore_note_export.sql",
        "<> noted.head_version",
        "< noted.head_version",
        _STORY,
    ),
    _mutant(
        "what the outbox publishes again is called lost",
        "database",
        "berth/cli/deployment/restore/lost_rows.py",
        "select event_id from outbox where event_id = any (%(ids)s::uuid[])\nunion ",
        "",
        _STORY,
    ),
    _mutant(
        "a release is replayed of what does not exist",
        "database",
        "migrations/functions/restores/restore_note_ends.sql",
        "when 'release' then exists",
        "when 'release' then true or exists",
        _STORY,
    ),
    _mutant(
        "revocations are undone",
        "database",
        "berth/cli/deployment/restore/running.py",
        "        _revoke(connection, restore.epoch, show)\n",
        "",
        _STORY,
    ),
    _mutant(
        "certificates stay valid",
        "nodes",
        "migrations/functions/restores/restore_revoke.sql",
        "where c.node_id = left_.subject_id and c.revoked_at is null",
        "where false",
        _STORY,
    ),
    _mutant(
        "what was released is provisioned before its release",
        "tasks",
        "orchestrator/tasks/store/tasks.py",
        "        if self.ended_before_restore:\n",
        "        if False:\n",
        _STORY,
    ),
    _mutant(
        "what was released starts anew under a new fence",
        "allocations",
        "migrations/functions/restores/restore_renew_fences.sql",
        "w.kind = 'release' and w.subject_id = a.id",
        "false",
        _STORY,
    ),
    _mutant(
        "a release is not replayed",
        "allocations",
        "orchestrator/allocations/commands/replays.py",
        "        await order_release(tx, subject, order, POLICY)\n",
        "",
        _STORY,
    ),
    _mutant(
        "the time since a lost release is billed",
        "allocations",
        "orchestrator/allocations/commands/replays.py",
        ", added=_outage_since(subject, replay)",
        "",
        _STORY,
    ),
    _mutant(
        "a cancel is not replayed",
        "reservations",
        "orchestrator/reservations/commands/replays.py",
        "        await end_reservation(tx, subject, end, POLICY)\n",
        "",
        _STORY,
    ),
    _mutant(
        "what was cancelled starts before its cancel",
        "reservations",
        "orchestrator/reservations/commands/start.py",
        "            if await is_cancelled(tx, subject.id):\n",
        "            if False:\n",
        _CANCELLED,
    ),
    _mutant(
        "what was cancelled takes the places of due starts",
        "reservations",
        "orchestrator/reservations/store/starting.py",
        "w.kind = 'cancel' and w.subject_id = reservations.id",
        "false",
        _CANCELLED,
    ),
    _mutant(
        "what was cancelled is consumed before its cancel",
        "reservations",
        "orchestrator/reservations/commands/consume.py",
        "    if reserved.is_cancelled:\n",
        "    if False:\n",
        _CANCELLED,
    ),
    _mutant(
        "a release wipes a machine whose occupant is unknown",
        "sites",
        "orchestrator/sites/tenancies.py",
        "    if await is_awaited(tx, node_id):\n",
        "    if False:\n",
        _RELEASE,
    ),
    _mutant(
        "what waits for an operator takes the places of runs",
        "tasks",
        "orchestrator/tasks/store/site_tasks.py",
        "  and not exists (select from awaited_inventories w where w.node_id = t.node_id)\n",
        "",
        _RELEASE,
    ),
    _mutant(
        "a machine that waits for its deployment is wiped as another's",
        "sites",
        "orchestrator/sites/tenancies.py",
        '    if task.type is TaskType.PROVISION_USER:\n        raise InvalidState(\n            f"allocation',
        '    if False:\n        raise InvalidState(\n            f"allocation',
        f"{_RESTORED}::test_what_waits_for_its_deployment_is_not_deployed_again",
    ),
    _mutant(
        "runs of before go on",
        "database",
        "berth/cli/deployment/restore/running.py",
        "        _end_runs(connection, restore.epoch, show)\n",
        "",
        _STORY,
    ),
    _mutant(
        "a run of before leaves its task without another one",
        "database",
        "migrations/functions/restores/restore_end_runs.sql",
        ", task_id = null, allocation_id = null, claim_id = null",
        "",
        _BEFORE,
    ),
    _mutant(
        "a deploy system of before goes on",
        "database",
        "migrations/functions/restores/restore_end_runs.sql",
        "    update deploy_systems set ended_at = clock_timestamp(), ended_by = 'revoked' where ended_at is null;\n",
        "",
        _BEFORE,
    ),
    _mutant(
        "a write without another event does not say what it was",
        "operations",
        "orchestrator/operations/store/operations.py",
        '"action": audited.get("action")',
        '"action": None',
        _STORY,
    ),
    _mutant(
        "versions that a feed had delivered are given again",
        "relay",
        "outbox_relay/rebuilding.py",
        "    spare = SPARE_VERSIONS if lost or await reader.is_restored() else 0\n",
        "    spare = 0\n",
        _SKIPS,
    ),
    _mutant(
        "a restore without NATS skips no version",
        "log",
        "migrations/functions/restores/restore_raise_sequences.sql",
        "<= raising.head_version then",
        "< 0 then",
        f"{_SEQUENCES}::test_versions_are_skipped_once_above_what_was_drawn_since",
    ),
    _mutant(
        "skipped versions break the chain on NATS",
        "client",
        "berth/client/feed/events.py",
        "chained_by_tenant or kind == VERSIONS_SKIPPED else",
        "chained_by_tenant else",
        _SKIPS,
    ),
    _mutant(
        "a source stops at skipped versions",
        "client",
        "berth/client/nats_source.py",
        " and not await self._skips(stream, state.first_seq, after)",
        "",
        _SKIPS,
    ),
    _mutant(
        "a source passes over events before skipped versions",
        "client",
        "berth/client/nats_source.py",
        " and event.prev_version <= after",
        "",
        _SKIPS,
    ),
    _mutant(
        "skipped versions break the chain of the feed",
        "log",
        "orchestrator/log/store/feed.py",
        "return self.prev_version if self.event_type == VERSIONS_SKIPPED else self.version - 1",
        "return self.version - 1",
        "tests/log/test_more_than_one_batch.py::test_versions_that_a_restore_has_skipped_are_one_event_of_the_chain",
    ),
    _mutant(
        "a stream of before goes on",
        "relay",
        "outbox_relay/rebuilding.py",
        "    if state.first_seq < skipped_to:\n",
        "    if False:\n",
        _SKIPS,
    ),
    _mutant(
        "any gap passes",
        "log",
        "orchestrator/verification/p3_one_order.py",
        "(payload ->> 'first')::bigint = before + 1",
        "true",
        "tests/berth/test_every_branch.py",
    ),
    _mutant(
        "tenants are not notified",
        "database",
        "migrations/functions/restores/restore_close.sql",
        "from (select t.id as tenant_id from tenants t where t.state <> 'deleted' union all select null) to_",
        "from (select cast(null as uuid) as tenant_id) to_",
        _NOTIFIED,
    ),
    _mutant(
        "deleted tenants are notified",
        "database",
        "migrations/functions/restores/restore_close.sql",
        " where t.state <> 'deleted'",
        "",
        _NOTIFIED,
    ),
    _mutant(
        "certificates of the lost interval are refused",
        "nodes",
        "berth/cli/deployment/restore/running.py",
        "        _adopt(connection, restore.epoch, show)\n",
        "",
        _ADOPTED,
    ),
    _mutant(
        "a certificate of a revoked node is adopted",
        "nodes",
        "migrations/functions/restores/restore_adopt.sql",
        "v.kind = 'certificates' and v.subject_id = n.id",
        "false",
        _ADOPTED,
    ),
    _mutant(
        "a certificate of another epoch is adopted",
        "nodes",
        "migrations/functions/restores/restore_note_ends.sql",
        "and x.epoch = (n.detail ->> 'epoch')::bigint",
        "",
        _ADOPTED,
    ),
    _mutant(
        "reported tasks are forgotten soon",
        "agent",
        "node_agent/journal_state.py",
        "REPORTED_KEPT = 256",
        "REPORTED_KEPT = 64",
        "tests/node_agent/test_journal_state.py::test_a_task_that_a_restored_database_hands_out_again_is_answered",
    ),
]
