"""Mutants of the stream of the audit, and of the findings of `berth doctor` about protection."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

NATS = "tests/audit_stream/test_nats.py"
SYSLOG = "tests/audit_stream/test_syslog.py"
CRASHES = "tests/audit_stream/test_crashes.py"
RETENTION = "tests/audit_stream/test_retention.py"
SETTINGS = "tests/audit_stream/test_settings.py"
DOCTOR = "tests/audit_stream/test_doctor.py"
PROTECTION = "tests/berth/test_doctor.py"
SENDER = "tests/webhooks/test_sender_process.py"
STREAMER = "worker/audit_stream/streamer.py"
SYSLOG_TARGET = "worker/audit_stream/syslog_target.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "messages are longer than rsyslog takes",
        "audit",
        "worker/audit_stream/settings.py",
        "        8_000, ge=2_048",
        "        8_192, ge=2_048",
        ("tests/audit_stream/test_rsyslog.py::test_every_row_is_written_once_and_whole[gtls]",),
    ),
    Mutant(
        "unsent rows of the audit are archived",
        "audit",
        "berth/cli/deployment/archive/audit_rows.py",
        "return DueRows(anchor, int(last) if unsent_from is None else int(sent), held_at, unsent_from)",
        "return DueRows(anchor, int(last), held_at, unsent_from)",
        (f"{RETENTION}::test_rows_leave_when_every_stream_has_sent_them",),
    ),
    Mutant(
        "the database lets unsent rows of the audit leave",
        "audit",
        "migrations/functions/audit/require_segment.sql",
        "       or exists (select from audit_streams t where t.sequence < new.sequence)\n",
        "",
        (f"{RETENTION}::test_the_database_refuses_to_let_unsent_rows_leave",),
    ),
    Mutant(
        "a stream begins with rows that are just leaving",
        "audit",
        "migrations/functions/audit/audit_stream_begin.sql",
        "    perform from audit_anchor for share;\n",
        "",
        (f"{RETENTION}::test_a_stream_that_is_enabled_during_an_archiving_begins_behind_it",),
    ),
    Mutant(
        "a position moves back",
        "audit",
        "migrations/functions/audit/require_chained_position.sql",
        "new.sequence < old.sequence\n",
        "false\n",
        (f"{RETENTION}::test_a_position_moves_neither_back_nor_beyond_the_chain",),
    ),
    Mutant(
        "the position is saved before the rows are sent",
        "audit",
        STREAMER,
        "        reach(CrashPoint.AUDIT_STREAM_BEFORE_SEND)\n",
        "        await save_audit_position(self._context, self._holder, progress.saved, rows[-1].sequence)\n"
        "        reach(CrashPoint.AUDIT_STREAM_BEFORE_SEND)\n",
        (f"{CRASHES}::test_nothing_is_lost_when_the_streamer_is_killed",),
    ),
    Mutant(
        "a gap of the chain is skipped",
        "audit",
        STREAMER,
        "if [row.sequence for row in rows] != list(range(progress.sent + 1, progress.sent + 1 + len(rows))):",
        "if False:",
        (f"{SYSLOG}::test_a_missing_row_of_the_chain_stops_the_stream",),
    ),
    Mutant(
        "a batch counts as received at once",
        "audit",
        STREAMER,
        "reached = progress.settled(time.monotonic(), self._target.settle_seconds)",
        "reached = progress.settled(time.monotonic(), 0)",
        (f"{SYSLOG}::test_rows_that_a_dying_receiver_did_not_read_are_sent_again",),
    ),
    Mutant(
        "bytes that the receiver has not acknowledged count",
        "audit",
        SYSLOG_TARGET,
        "while _unacknowledged(self._socket):",
        "while False:",
        (f"{SYSLOG}::test_a_receiver_that_reads_nothing_stops_the_stream_alone",),
    ),
    Mutant(
        "any certificate of a syslog receiver is good",
        "audit",
        SYSLOG_TARGET,
        "        context.minimum_version = ssl.TLSVersion.TLSv1_2\n",
        "        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE\n",
        (f"{SYSLOG}::test_a_receiver_that_is_not_verified_gets_no_row",),
    ),
    Mutant(
        "a repeated batch that NATS refuses is never sent",
        "audit",
        "worker/audit_stream/nats_target.py",
        'if error.get("err_code") != DUPLICATE_IN_BATCH:',
        "if True:",
        (f"{NATS}::test_a_batch_that_is_repeated_is_stored_once",),
    ),
    Mutant(
        "a stream that acknowledges nothing is used",
        "audit",
        "worker/audit_stream/nats_target.py",
        "bool(config.no_ack)",
        "False",
        (f"{NATS}::test_a_stream_that_would_lose_rows_is_refused",),
    ),
    Mutant(
        "two processes send at a time",
        "audit",
        "orchestrator/audit/stream_store.py",
        "(leased_by = :process or leased_by is null or leased_until < clock_timestamp())",
        "true",
        (f"{NATS}::test_two_processes_send_every_row_once_and_one_takes_over_from_the_other",),
    ),
    Mutant(
        "the audit crosses a network in clear text",
        "audit",
        "worker/audit_stream/settings.py",
        "and not self.audit_syslog_plain_allowed:",
        "and False:",
        (f"{SETTINGS}::test_what_cannot_work_is_refused",),
    ),
    Mutant(
        "four eyes with one operator are fine",
        "audit",
        "berth/cli/deployment/operator_findings.py",
        "if people >= 2 or (people and break_glass):",
        "if people >= 1:",
        (f"{DOCTOR}::test_four_eyes_need_a_second_operator_or_a_break_glass_key",),
    ),
    Mutant(
        "a failing stream is fine",
        "audit",
        "berth/cli/deployment/operator_findings.py",
        "if stream.last_error is not None:",
        "if False:",
        (f"{DOCTOR}::test_streams_of_the_audit",),
    ),
    Mutant(
        "enrolment over http is fine",
        "audit",
        "berth/cli/deployment/security_findings.py",
        'return parts.scheme in ("https", "tls", "wss")',
        'return parts.scheme in ("http", "https", "tls", "wss")',
        (f"{PROTECTION}::test_an_api_that_is_reached_over_http_is_reported",),
    ),
    Mutant(
        "the api's transport is not examined",
        "audit",
        "berth/cli/deployment/examination.py",
        '    addresses = {"api": api_url, ',
        '    addresses = {"api": None, ',
        (f"{PROTECTION}::test_an_api_that_is_reached_over_http_is_reported",),
    ),
    Mutant(
        "an operators' webhook outlives the expiry of its key",
        "webhooks",
        "orchestrator/webhooks/store/dispatch.py",
        "leader_id = postgres_leader_id()\n      and (w.key_expires_at is null or w.key_expires_at > clock_timestamp())\n",
        "leader_id = postgres_leader_id()\n",
        (f"{SENDER}::test_an_operators_webhook_ends_with_the_expiry_of_its_key",),
    ),
    Mutant(
        "a waiting delivery is sent after the expiry of its key",
        "webhooks",
        "orchestrator/webhooks/store/dispatch.py",
        "w.state <> 'deleted'\n         and (w.key_expires_at is null or w.key_expires_at > clock_timestamp())\n",
        "w.state <> 'deleted'\n",
        (f"{SENDER}::test_an_operators_webhook_ends_with_the_expiry_of_its_key",),
    ),
    Mutant(
        "a webhook stays with the key that was rotated",
        "webhooks",
        "orchestrator/tenants/store/key_changes.py",
        "update webhooks set created_by = :successor, key_expires_at = :expires_at",
        "update webhooks set created_by = created_by",
        (f"{SENDER}::test_a_webhook_belongs_to_the_key_that_a_rotation_or_an_operator_gives_it",),
    ),
]
