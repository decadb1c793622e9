"""Mutants of these nouns: worker and relay."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RESCUE = "tests/worker/test_rescue.py"
_CREDENTIALS = "tests/worker/test_temporal_credentials.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "each round searches stranded reservations from the beginning",
        "worker",
        "worker/sweepers/reservation_starter.py",
        "self._stranded_after = found[-1][1] if len(found) == self._limit else 0",
        "self._stranded_after = 0",
        (
            (
                "tests/worker/test_batches_of_sweepers.py::"
                "test_stranded_reservations_that_cannot_move_do_not_delay_later_ones"
            ),
        ),
    ),
    Mutant(
        "sequencing waits without a limit for whether a restore is open",
        "relay",
        "outbox_relay/sequencing.py",
        """                    with self._owed(connection):
                        require_no_restore_now(connection)""",
        """                    if True:
                        require_no_restore_now(connection)""",
        ("tests/outbox_relay/test_sequencing.py::test_a_server_that_is_silent_before_the_first_step_is_abandoned",),
    ),
    Mutant(
        "metering ends with a session that its server ended",
        "worker",
        "berth/process/passing_states.py",
        "PASSING_STATES = frozenset({READ_ONLY, IDLE_TOO_LONG, TRANSACTION_TOO_LONG})",
        "PASSING_STATES = frozenset({READ_ONLY, TRANSACTION_TOO_LONG})",
        ("tests/consumers/test_passing_states.py",),
    ),
    Mutant(
        "metering ends with a standby that refuses a write",
        "worker",
        "berth/process/passing_states.py",
        "PASSING_STATES = frozenset({READ_ONLY, IDLE_TOO_LONG, TRANSACTION_TOO_LONG})",
        "PASSING_STATES = frozenset({IDLE_TOO_LONG, TRANSACTION_TOO_LONG})",
        ("tests/consumers/test_passing_states.py::test_a_standby_that_refuses_a_write_is_followed_by_the_primary",),
    ),
    Mutant(
        "each round searches lost workflows from the beginning",
        "worker",
        "worker/sweepers/lost_workflows.py",
        "self._after = following or FIRST_POSITION",
        "self._after = FIRST_POSITION",
        (
            (
                "tests/worker/test_sweeps_of_many.py::"
                "test_lost_workflows_are_looked_for_behind_the_last_one_and_from_the_beginning_again"
            ),
        ),
    ),
    Mutant(
        "lost workflows are never searched from the beginning again",
        "worker",
        "worker/sweepers/lost_workflows.py",
        "if len(waiters) == self._limit else None",
        "if waiters else after",
        (
            (
                "tests/worker/test_sweeps_of_many.py::"
                "test_lost_workflows_are_looked_for_behind_the_last_one_and_from_the_beginning_again"
            ),
        ),
    ),
    Mutant(
        "a new store of Temporal is not noticed",
        "worker",
        "worker/sweepers/lost_workflows.py",
        "        if store != self._store:\n",
        "        if self._store is None:\n",
        (f"{_RESCUE}::test_every_wait_is_checked_in_pages_when_the_store_is_new_and_none_when_it_is_the_same",),
    ),
    Mutant(
        "only old waits are checked after a loss of Temporal's store",
        "worker",
        "worker/sweepers/lost_workflows.py",
        "self._check_page(0.0, self._after_in_store)",
        "self._check_page(self._patience_seconds, self._after_in_store)",
        (f"{_RESCUE}::test_every_wait_is_checked_in_pages_when_the_store_is_new_and_none_when_it_is_the_same",),
    ),
    Mutant(
        "a call to Temporal has no bound",
        "worker",
        "worker/workflows/starting.py",
        ".describe(rpc_timeout=CALL_TIMEOUT)",
        ".describe()",
        (f"{_RESCUE}::test_a_frozen_temporal_ends_each_call_soon",),
    ),
    Mutant(
        "every error of Temporal means that a workflow is absent",
        "worker",
        "worker/workflows/starting.py",
        'if error.status is RPCStatusCode.NOT_FOUND and "namespace" not in',
        'if "namespace" not in',
        ("tests/worker/test_sweeps_of_many.py::test_only_not_found_means_that_a_workflow_is_absent",),
    ),
    Mutant(
        "a missing namespace means that a workflow is absent",
        "worker",
        "worker/workflows/starting.py",
        ' and "namespace" not in error.message.lower():',
        ":",
        (("tests/worker/test_sweeps_of_many.py::test_a_missing_namespace_does_not_mean_that_a_workflow_is_absent"),),
    ),
    Mutant(
        "every error of Temporal means that a workflow is closed",
        "worker",
        "worker/workflows/starting.py",
        ("            if error.status is RPCStatusCode.NOT_FOUND:\n                return False\n            raise\n"),
        "            return False\n",
        ("tests/worker/test_sweeps_of_many.py::test_only_not_found_means_that_a_workflow_is_absent",),
    ),
    Mutant(
        "an event is acknowledged before its effect",
        "worker",
        "worker/consumers/consumer.py",
        "        reach(CrashPoint.EVENT_BEFORE_DISPATCH)\n",
        ("        await message.ack()\n        reach(CrashPoint.EVENT_BEFORE_DISPATCH)\n"),
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "the position is what was delivered",
        "worker",
        "worker/consumers/durable.py",
        "floor = info.ack_floor.stream_seq if info.ack_floor else 0",
        "floor = info.delivered.stream_seq if info.delivered else 0",
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "the position passes unacknowledged events",
        "worker",
        "worker/consumers/durable.py",
        "if info.num_pending == 0 and info.num_ack_pending == 0:",
        "if info.num_pending == 0:",
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "the position passes events that were not delivered",
        "worker",
        "worker/consumers/durable.py",
        "if info.num_pending == 0 and info.num_ack_pending == 0:",
        "if info.num_ack_pending == 0:",
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "a new consumer skips an event",
        "worker",
        "worker/consumers/durable.py",
        "opt_start_seq=position + 1 if position",
        "opt_start_seq=position + 2 if position",
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "a new consumer begins at the stream's end",
        "worker",
        "worker/consumers/durable.py",
        "DeliverPolicy.BY_START_SEQUENCE if position else DeliverPolicy.ALL",
        "DeliverPolicy.NEW",
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "a message whose burial failed is ended",
        "worker",
        "worker/consumers/dead_letters.py",
        ("            await message.nak(delay=self._pause_seconds)\n            return\n        self._tries"),
        ("            await message.term()\n            return\n        self._tries"),
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "a message is ended before it is buried",
        "worker",
        "worker/consumers/dead_letters.py",
        ("        try:\n            created = await bury_event"),
        ("        await message.term()\n        try:\n            created = await bury_event"),
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "a failed burial forgets its tries",
        "worker",
        "worker/consumers/dead_letters.py",
        "self._track(version, tries - 1, time.monotonic() - trying_seconds)",
        "self._tries.pop(version, None)",
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "a failed burial counts as a try",
        "worker",
        "worker/consumers/dead_letters.py",
        "self._track(version, tries - 1,",
        "self._track(version, tries,",
        ("tests/worker/test_saved_positions.py",),
    ),
    Mutant(
        "an idle relay does not notice that NATS is gone",
        "relay",
        "outbox_relay/publishing.py",
        "                    self._link.require_connected()\n",
        "",
        ("tests/outbox_relay/test_trouble.py::test_an_idle_relay_notices_that_nats_is_gone_and_has_returned_empty",),
    ),
    Mutant(
        "the relay saves what it sent",
        "relay",
        "outbox_relay/publishing.py",
        "                await self._save_position(stored)",
        "                await self._save_position(self._feed.cursor)",
        ("tests/outbox_relay/test_saved_position.py",),
    ),
    Mutant(
        "the relay saves the log's head",
        "relay",
        "outbox_relay/publishing.py",
        "await self._reader.save_position(stored)",
        "await self._reader.save_position(self._publisher.head.version)",
        ("tests/outbox_relay/test_saved_position.py",),
    ),
    Mutant(
        "the relay goes on where its position is",
        "relay",
        "outbox_relay/publishing.py",
        "        return found.state.last_seq\n",
        (
            "        async with self._reader._connection.cursor() as c:\n"
            '            await c.execute("select version from consumer_positions where consumer = '
            "'berth-relay'\")\n"
            "            row = await c.fetchone()\n"
            "        return row[0] if row else 0\n"
        ),
        ("tests/outbox_relay/test_saved_position.py",),
    ),
    Mutant(
        "a batch names no last sequence",
        "relay",
        "outbox_relay/messages.py",
        "        if number == 1:\n",
        "        if number == 0:\n",
        ("tests/outbox_relay/test_messages.py::test_frames_are_one_fenced_batch",),
    ),
    Mutant(
        "a batch is never committed",
        "relay",
        "outbox_relay/messages.py",
        ("            if last > 1:\n                header"),
        ("            if last > 2:\n                header"),
        ("tests/outbox_relay/test_messages.py::test_frames_are_one_fenced_batch",),
    ),
    Mutant(
        "the relay publishes behind a stream ahead of the log",
        "relay",
        "outbox_relay/stream.py",
        "if last_published > head:",
        "if False:",
        ("tests/outbox_relay/test_stream.py::test_publishing_goes_on_behind_the_stream",),
    ),
    Mutant(
        "the relay publishes behind a gap",
        "relay",
        "outbox_relay/stream.py",
        "lowest_kept > following",
        "lowest_kept > following + 10",
        ("tests/outbox_relay/test_stream.py::test_publishing_goes_on_behind_the_stream",),
    ),
    Mutant(
        "a missing version is passed over",
        "relay",
        "outbox_relay/feed.py",
        "if read and read[-1].version != self.cursor + len(read):",
        "if False:",
        ("tests/outbox_relay/test_trouble.py::test_hole_in_the_log_stops_publishing",),
    ),
    Mutant(
        "a stream in memory is accepted",
        "relay",
        "outbox_relay/stream.py",
        '        ("storage", found.storage, StorageType.FILE),\n',
        "",
        ("tests/outbox_relay/test_stream.py::test_dangerous_configuration_is_refused",),
    ),
    Mutant(
        "a stream that drops events is accepted",
        "relay",
        "outbox_relay/stream.py",
        '        ("max_bytes", found.max_bytes),\n',
        "",
        ("tests/outbox_relay/test_stream.py::test_dangerous_configuration_is_refused",),
    ),
    Mutant(
        "a round of ended allocations has no bound",
        "worker",
        "orchestrator/allocations/store/due.py",
        ("waits_for <> 'units'\norder by ends_at limit :limit"),
        ("waits_for <> 'units'\norder by ends_at limit :limit + 10"),
        (
            "tests/worker/test_batches_of_sweepers.py::test_each_round_ends_one_batch_until_nothing_is_left[ended_allocations]",
        ),
    ),
    Mutant(
        "a round of expired tasks stops at the first",
        "worker",
        "orchestrator/tasks/store/expiry.py",
        "order by expires_at limit :limit",
        "order by expires_at limit least(:limit, 1)",
        (
            "tests/worker/test_batches_of_sweepers.py::test_each_round_ends_one_batch_until_nothing_is_left[expired_tasks]",
        ),
    ),
    Mutant(
        "a round of windows that are over has no bound",
        "worker",
        "orchestrator/reservations/store/overdue.py",
        "order by r.waits_until, r.position limit :limit",
        "order by r.waits_until, r.position limit :limit + 10",
        (
            "tests/worker/test_batches_of_sweepers.py::test_each_round_ends_one_batch_until_nothing_is_left[windows_over]",
        ),
    ),
    Mutant(
        "the worker logs the address of a webhook",
        "worker",
        "worker/webhooks/dispatching.py",
        "        for delivery in leased:\n",
        ("        for delivery in leased:\n            log.info('delivery_leased', delivery=repr(delivery))\n"),
        ("tests/whole/test_secrets_in_logs.py",),
    ),
    Mutant(
        "a payload is bound to no workflow",
        "worker",
        "worker/payloads.py",
        'return b"%s\\0%d:%s%s" % (_PURPOSE, len(namespace), namespace, self.workflow_id.encode())',
        "return _PURPOSE",
        ("tests/worker/test_payloads.py::test_a_payload_of_another_workflow_is_refused",),
    ),
    Mutant(
        "a payload is bound to its namespace alone",
        "worker",
        "worker/payloads.py",
        "namespace, self.workflow_id.encode())",
        'namespace, b"")',
        ("tests/worker/test_payloads.py::test_a_payload_is_read_in_its_own_workflow_alone",),
    ),
    Mutant(
        "payloads in the clear are always read",
        "worker",
        "worker/payloads.py",
        "if not bound and not self._earlier_allowed:",
        "if False:",
        ("tests/worker/test_payloads.py::test_what_earlier_versions_wrote_is_read_only_where_that_is_allowed",),
    ),
    Mutant(
        "what belongs to no workflow is stored as it is",
        "worker",
        "worker/payloads.py",
        "if payload.metadata.get(BOUND) != _TO_WORKFLOW:",
        "if False:",
        ("tests/worker/test_payloads.py::test_nothing_is_stored_outside_of_a_workflow",),
    ),
    Mutant(
        "the worker keeps the client of replaced credentials",
        "worker",
        "worker/reconnecting.py",
        "        use(client)\n",
        "",
        (
            "tests/worker/test_temporal_credentials.py::test_a_worker_connects_anew_with_replaced_files_and_loses_nothing",
        ),
    ),
]
