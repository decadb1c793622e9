"""Mutants of the continuity of publishing: what stops it, and what lets it go on after a failover."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FAILOVER = "tests/outbox_relay/test_failover.py"
_QUORUM = f"{_FAILOVER}::test_publishing_goes_on_by_itself_after_a_failover_under_quorum_commit"
_ASYNCHRONOUS = f"{_FAILOVER}::test_an_asynchronous_standby_that_is_promoted_waits_for_an_operator"
_LAGGING = f"{_FAILOVER}::test_a_lagging_standby_that_is_promoted_waits_for_an_operator"
_COPIED = "tests/outbox_relay/test_rebuilding.py::test_versions_that_a_copied_data_directory_lost_are_never_given_again"
_TROUBLE = "tests/outbox_relay/test_trouble.py"
_POOLS = "tests/database/test_failover.py"
_LEADER = "migrations/functions/log/postgres_leader_id.sql"
_NAMES = "tests/database/test_deposed_primaries.py::test_standbys_and_promoted_servers_name_the_timeline_that_they_have"
_RESUME = "migrations/functions/log/log_resume_timeline.sql"

MUTANTS: list[Mutant] = [
    Mutant(
        "the end of the stream is not compared with the log",
        "relay",
        "outbox_relay/continuity.py",
        "if logged is None or logged == published:",
        "if True:",
        (_COPIED, f"{_TROUBLE}::test_foreign_message_in_the_stream_stops_publishing"),
    ),
    Mutant(
        "a relay that must not publish ends",
        "relay",
        "outbox_relay/publishing.py",
        "                await asyncio.sleep(jittered(STOPPED_LOOK_SECONDS))\n",
        "                raise\n",
        (f"{_TROUBLE}::test_another_postgres_stops_publishing",),
    ),
    Mutant(
        "a stop of publishing outlasts its cause in /ok",
        "relay",
        "outbox_relay/publishing.py",
        '                self._note_stopped(None)\n                self.state.publishing = f"waiting for {lost.server}"\n',
        '                self.state.publishing = f"waiting for {lost.server}"\n',
        (f"{_TROUBLE}::test_a_server_that_is_lost_while_publishing_is_stopped_is_what_ok_says",),
    ),
    Mutant(
        "an asynchronous standby's timeline is continued",
        "relay",
        _RESUME,
        "    elsif current_setting('synchronous_standby_names') = '' then\n        return 'asynchronous';\n",
        "",
        (_ASYNCHRONOUS,),
    ),
    Mutant(
        "a timeline that lacks published versions is continued",
        "relay",
        _RESUME,
        "    elsif p_version > head.version then\n        return 'behind';\n",
        "",
        (_LAGGING,),
    ),
    Mutant(
        "a timeline with another event at the end of the stream is continued",
        "relay",
        _RESUME,
        "event_id::text = p_event_id",
        "true",
        (_LAGGING,),
    ),
    Mutant(
        "another database system is continued",
        "relay",
        _RESUME,
        "if split_part(head.leader_id, '-', 1) <> split_part(here, '-', 1) then",
        "if false then",
        (f"{_FAILOVER}::test_each_condition_of_a_timeline_that_is_continued",),
    ),
    Mutant(
        "fences stay as they are on a new timeline that is continued",
        "relay",
        _RESUME,
        "nextval('fences') + 1000000",
        "nextval('fences') + 1",
        (_QUORUM,),
    ),
    Mutant(
        "publishing waits for a frozen primary for ever",
        "relay",
        "berth/process/database_connections.py",
        "            shut(self.fileno())\n",
        "            pass\n",
        (f"{_POOLS}::test_a_commit_that_no_standby_confirms_is_an_unknown_outcome_and_is_not_cancelled[call]",),
    ),
    Mutant(
        "a silent server is cancelled, and the cancelled commit is a success",
        "database",
        "berth/process/database_connections.py",
        "            shut(self.fileno())\n",
        "            self.cancel()\n",
        (f"{_POOLS}::test_a_commit_that_no_standby_confirms_is_an_unknown_outcome_and_is_not_cancelled[transaction]",),
    ),
    Mutant(
        "a connection of calls to a standby is kept",
        "database",
        "orchestrator/database/calls.py",
        "            if is_of_standby(error):\n                await self._connection.close()\n",
        "",
        (f"{_POOLS}::test_a_refusal_of_a_standby_ends_its_connections[call]",),
    ),
    Mutant(
        "a pooled connection to a standby is kept",
        "database",
        "orchestrator/database/calls.py",
        "            context.is_disconnect = True\n",
        "            pass\n",
        (f"{_POOLS}::test_a_refusal_of_a_standby_ends_its_connections[transaction]",),
    ),
    Mutant(
        "an address lists servers in front of the database's name",
        "database",
        "berth/process/server_addresses.py",
        "    if len(places) > 1:\n",
        "    if False:\n",
        ("tests/cli/test_server_addresses.py",),
    ),
    Mutant(
        "sequencing waits for a frozen primary for ever",
        "relay",
        "outbox_relay/sequencing.py",
        "        shut(waiting[1])\n",
        "        pass\n",
        (f"{_FAILOVER}::test_a_frozen_primary_is_abandoned",),
    ),
    Mutant(
        "a rebuild gives published versions to other events without being asked",
        "relay",
        "outbox_relay/rebuilding.py",
        "if not other or own is None or other == own:",
        "if True:",
        (_COPIED,),
    ),
    Mutant(
        "a publisher needs no barrier",
        "relay",
        "outbox_relay/publishing.py",
        "        await self._reader.commit_barrier()\n",
        "",
        (f"{_FAILOVER}::test_what_no_standby_has_is_not_published",),
    ),
    Mutant(
        "a part that waits for an operator is ended",
        "client",
        "berth/local/supervision.py",
        "        watched.ready_until = self._clock() + READY_SECONDS_MAX\n        if not watched.is_blocked:",
        "        if not watched.is_blocked:",
        ("tests/berth/test_supervision.py::test_a_part_that_waits_for_an_operator_is_not_ended",),
    ),
    Mutant(
        "doctor does not compare stream and log",
        "verification",
        "outbox_relay/continuity.py",
        "differs if differs <= min(last, status.head) else None",
        "None",
        ("tests/berth/test_doctor.py::test_another_history_in_nats_is_found_by_content",),
    ),
    Mutant(
        "an acceptance that is repeated moves the log again",
        "relay",
        "outbox_relay/rebuilding.py",
        "    if await reader.is_skipped(published):\n",
        "    if False:\n",
        (_COPIED,),
    ),
    Mutant(
        "commits that wait for a standby take every session",
        "database",
        "orchestrator/database/calls.py",
        "row[0] >= COMMITS_WAITING_MAX",
        "row[0] >= 10_000",
        (f"{_POOLS}::test_commits_that_wait_for_a_standby_take_a_bounded_number_of_sessions",),
    ),
    Mutant(
        "a connection that was shut is used again",
        "database",
        "berth/process/database_connections.py",
        "                self.pgconn.finish()\n",
        "                pass\n",
        (f"{_POOLS}::test_a_connection_whose_answer_comes_with_the_shutdown_is_not_used_again",),
    ),
    Mutant(
        "barriers that wait are not one at a time",
        "relay",
        "outbox_relay/reading.py",
        "pg_try_advisory_xact_lock(hashtext('berth.barrier'))",
        "true",
        (f"{_FAILOVER}::test_one_barrier_waits_at_a_time",),
    ),
    Mutant(
        "an idle connection is tested for as long as a statement may take",
        "database",
        "berth/process/database_connections.py",
        "before, self.answer_seconds_max = self.answer_seconds_max, ALIVE_SECONDS_MAX",
        "before = self.answer_seconds_max",
        (f"{_POOLS}::test_a_connection_that_idles_to_a_frozen_primary_is_tested_for_a_short_time",),
    ),
    Mutant(
        "a standby is asked for the position that only a primary has",
        "database",
        _LEADER,
        "when not pg_is_in_recovery() then",
        "when true then",
        (_NAMES,),
    ),
]
