"""Mutants of the epochs of the log, and of what a relay that was started since requires of a failover."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LOG = "migrations/functions/log"
_DOUBT = f"{_LOG}/log_failover_doubt.sql"
_PROOF = "tests/outbox_relay/test_proof_of_failover.py"
_SPEAKS = f"{_PROOF}::test_what_speaks_against_a_failover"
_EPOCHS = "tests/outbox_relay/test_epochs.py"
_COMMITS = "tests/keyvalue/test_commits.py"
_EARLIER = f"{_COMMITS}::test_versions_and_leaders_of_an_earlier_epoch_satisfy_nothing"
_BEFORE = f"{_COMMITS}::test_versions_and_leaders_of_before_there_were_epochs_are_valid"

MUTANTS: list[Mutant] = [
    Mutant(
        "a row names the accepted leader, whichever server sequences it",
        "relay",
        f"{_LOG}/log_advance.sql",
        "here || '-' || head.epoch, payload",
        "head.leader_id || '-' || head.epoch, payload",
        (f"{_EPOCHS}::test_a_row_names_the_server_that_sequenced_it_before_that_is_accepted",),
    ),
    Mutant(
        "an accepted copy of a data directory has the epoch of its origin",
        "relay",
        f"{_LOG}/log_skip_versions.sql",
        "'-' || log_open_epoch();",
        "'-' || (select epoch from log_head);",
        (f"{_EPOCHS}::test_an_accepted_copy_of_a_data_directory_is_another_epoch",),
    ),
    Mutant(
        "a resumed timeline has the epoch of the one before",
        "relay",
        f"{_LOG}/log_resume_timeline.sql",
        "    perform log_open_epoch();\n",
        "",
        (
            "tests/outbox_relay/test_failover.py::test_publishing_goes_on_by_itself_after_a_failover_under_quorum_commit",
        ),
    ),
    Mutant(
        "a stream with other events is replaced within the epoch",
        "relay",
        "outbox_relay/rebuilding.py",
        "            await reader.open_epoch()\n",
        "            pass\n",
        (f"{_EPOCHS}::test_a_stream_that_is_made_anew_is_another_epoch_only_where_it_had_other_events",),
    ),
    Mutant(
        "every stream that is made anew opens an epoch",
        "relay",
        "outbox_relay/rebuilding.py",
        "if order.anew and stream is not None and await _has_other_history(reader, link, stream, status):",
        "if order.anew:",
        (f"{_EPOCHS}::test_a_stream_that_is_made_anew_is_another_epoch_only_where_it_had_other_events",),
    ),
    Mutant(
        "a version of an earlier epoch satisfies preconditions",
        "keyvalue",
        "migrations/functions/keyvalue/kv_conflicts.sql",
        "l.leader_id in (p_leader, left(p_leader, -9))",
        "left(l.leader_id, length(p_leader) - 9) = left(p_leader, -9)",
        (_EARLIER,),
    ),
    Mutant(
        "a commit for an earlier epoch is applied",
        "keyvalue",
        "migrations/functions/keyvalue/kv_commit.sql",
        "item.leader_id not in (leader, left(leader, -9))",
        "left(item.leader_id, length(leader) - 9) <> left(leader, -9)",
        (_EARLIER,),
    ),
    Mutant(
        "versions of before there were epochs satisfy nothing",
        "keyvalue",
        "migrations/functions/keyvalue/kv_conflicts.sql",
        "l.leader_id in (p_leader, left(p_leader, -9))",
        "l.leader_id = p_leader",
        (_BEFORE,),
    ),
    Mutant(
        "a relay that was started since asks nothing of PostgreSQL",
        "relay",
        "outbox_relay/continuity.py",
        "else await reader.failover_doubt()",
        "else None",
        (f"{_PROOF}::test_a_relay_that_was_started_since_stops_at_a_restored_server",),
    ),
    Mutant(
        "a relay that was started since needs no witness",
        "relay",
        "outbox_relay/continuity.py",
        'doubt = "unwitnessed" if status.head and not last_version else await reader.failover_doubt()',
        "doubt = await reader.failover_doubt()",
        (f"{_PROOF}::test_a_relay_that_was_started_since_stops_where_nats_lost_its_stream",),
    ),
    Mutant(
        "a relay that was started since always waits for an operator",
        "relay",
        "outbox_relay/continuity.py",
        "else await reader.failover_doubt()",
        'else "unstreamed"',
        (f"{_PROOF}::test_a_relay_that_was_started_since_continues_after_a_failover",),
    ),
    Mutant(
        "whether commits waited for a standby is said by the promoted server",
        "relay",
        f"{_LOG}/log_advance.sql",
        "case when head.leader_id = here then",
        "case when true then",
        (f"{_SPEAKS}[without_quorum-unconfirmed]",),
    ),
    Mutant(
        "a second timeline is taken for a failover",
        "relay",
        _DOUBT,
        "            or ('x' || split_part(postgres_leader_id(), '-', 2))::bit(32)::bigint\n"
        "                <> ('x' || split_part(h.leader_id, '-', 2))::bit(32)::bigint + 1 then 'timelines'",
        "             then 'timelines'",
        (f"{_SPEAKS}[promoted_twice-timelines]",),
    ),
    Mutant(
        "a standby that ended its recovery at a target is taken for a failover",
        "relay",
        _DOUBT,
        "current_setting('recovery_target_name'), ",
        "",
        (f"{_SPEAKS}[targeted-targeted]",),
    ),
    Mutant(
        "a receiver that never connected is taken for streaming",
        "relay",
        _DOUBT,
        "coalesce(pg_last_wal_receive_lsn() < pg_last_wal_replay_lsn()\n"
        "                      or (pg_last_wal_receive_lsn() - '0/0') % pg_size_bytes(current_setting('wal_segment_size')) = 0,"
        " true)",
        "pg_last_wal_receive_lsn() is null",
        (f"{_SPEAKS}[never_connected-unstreamed]",),
    ),
]
