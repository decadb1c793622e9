"""Bugs that a process of the test build can be started with (BERTH_PLANTED_BUG): each breaks one promise on purpose.

A bug is a function without arguments that patches modules of ours; it imports what it patches itself. Bugs of the
database are SQL, run after the migrations by the caller that starts the stack. A bug may have a part in both. Which checker
catches which bug is in docs/explanation/campaign.md and is tested in tests/campaign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from tests.testbuild import (
    bugs_of_agent,
    bugs_of_control_plane,
    bugs_of_feed,
    bugs_of_fleet,
    bugs_of_keyvalue,
    bugs_of_relay,
    bugs_of_worker,
)
from tests.testbuild import bugs_under_faults as under_faults
from tests.testbuild.bugs_of_accounts import ACCOUNT_BUGS
from tests.testbuild.bugs_of_database import DATABASE_SQL
from tests.testbuild.bugs_of_machines import MACHINE_BUGS
from tests.testbuild.planting import unplant

PLANTED_BUGS: dict[str, Callable[[], None]] = {
    "agent_not_fenced": bugs_of_agent.accept_old_fences,
    "effect_before_journal": bugs_of_agent.begin_before_journaling,
    "application_clock": bugs_of_control_plane.judge_by_own_clock,
    "cleanup_not_awaited": bugs_of_control_plane.forget_that_claims_close_once,
    "fingerprint_of_path": bugs_of_control_plane.ignore_content,
    "key_apart_from_effect": bugs_of_control_plane.commit_key_apart,
    "no_node_lock": bugs_of_control_plane.leave_nodes_unlocked,
    "results_not_fenced": bugs_of_control_plane.take_every_result,
    "tombstones_forgotten": bugs_of_control_plane.forget_tombstones,
    "windows_always_begun": bugs_of_control_plane.take_every_window_for_begun,
    "signal_is_fact": bugs_of_control_plane.believe_that_ended_is_done,
    "reads_without_waiting": bugs_of_keyvalue.read_without_waiting,
    "reads_from_cache": bugs_of_keyvalue.read_from_cache,
    "version_before_in_response": bugs_of_keyvalue.answer_with_the_version_before,
    "status_without_log": bugs_of_keyvalue.find_no_transaction,
    "feed_skips_at_page_boundary": bugs_of_feed.skip_at_page_boundary,
    "feed_of_every_tenant": bugs_of_feed.send_to_every_tenant,
    "socket_resumes_too_far": bugs_of_feed.resume_one_too_far,
    "truncation_unnoticed": bugs_of_feed.pass_over_what_is_gone,
    "checkpoints_ahead": bugs_of_feed.check_ahead,
    "feed_repeats_when_attached": bugs_of_feed.repeat_when_attached,
    "feed_without_operation_keys": bugs_of_feed.lose_operation_keys,
    "catalogue_apart_from_key": bugs_of_fleet.change_the_catalogue_apart_from_its_key,
    "drain_forgets_unit": bugs_of_fleet.forget_a_unit_of_drains,
    "node_retired_in_use": bugs_of_fleet.retire_nodes_in_use,
    "price_of_activation": bugs_of_fleet.sell_at_the_price_of_activation,
    "retired_sku_sold": bugs_of_fleet.sell_retired_skus,
    "revocation_unchecked": bugs_of_fleet.accept_revoked_certificates,
    "uncordon_by_word": bugs_of_fleet.uncordon_by_word_alone,
    "window_without_claim": bugs_of_fleet.commit_windows_without_claims,
    "publish_without_sequence": bugs_of_relay.publish_without_sequence,
    "acknowledge_before_effect": bugs_of_worker.acknowledge_first,
    "default_reuse_policy": bugs_of_worker.reuse_workflow_ids,
    **ACCOUNT_BUGS,
    **MACHINE_BUGS,
    "own_clock": under_faults.judge_by_wall_clock,
    "ended_sessions_kept": under_faults.keep_ended_sessions,
    "acknowledged_without_room": under_faults.acknowledge_without_room,
    "failed_statements_prepared": under_faults.count_failed_statements_as_prepared,
    "ended_certificates_accepted": under_faults.accept_ended_certificates,
    "agent_by_own_clock": under_faults.judge_tasks_by_wall_clock,
}

PLANTED_SQL: dict[str, str] = {
    **DATABASE_SQL, **bugs_of_keyvalue.KEYVALUE_SQL, **bugs_of_feed.FEED_SQL,
    "log_behind_open_transactions": under_faults.LOG_BEHIND_OPEN_TRANSACTIONS,
}  # fmt: skip

BUGS = sorted({*PLANTED_BUGS, *PLANTED_SQL})
"""Every name."""


@contextmanager
def planted(name: str | None, database_url: str | None = None) -> Iterator[None]:
    """The bug in this process, and in a database if one is named, until the block ends; the database keeps it."""
    if database_url is not None and name in PLANTED_SQL:
        with psycopg.connect(database_url) as connection:
            connection.execute(PLANTED_SQL[name].encode())
    try:
        if name in PLANTED_BUGS:
            PLANTED_BUGS[name]()
        yield
    finally:
        unplant()


__all__ = ["BUGS", "PLANTED_BUGS", "PLANTED_SQL", "planted"]
