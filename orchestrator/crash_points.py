"""Crash points of the orchestrator and the worker; docs/reference/crash-points.md describes each."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Literal

from berth.process.crash_points import is_installed, reach

__all__ = ["CrashPoint", "Moment", "reach", "reach_commit"]

Moment = Literal["before_commit", "after_commit"]


class CrashPoint(StrEnum):
    """Labels. Those of a commit are the command's name and the moment; commands without a pair share `other_command`."""

    CREATE_ALLOCATIONS_BEFORE_COMMIT = "create_allocations.before_commit"
    CREATE_ALLOCATIONS_AFTER_COMMIT = "create_allocations.after_commit"
    REFUSAL_BEFORE_COMMIT = "refusal.before_commit"
    REFUSAL_AFTER_COMMIT = "refusal.after_commit"
    RELEASE_ALLOCATION_BEFORE_COMMIT = "release_allocation.before_commit"
    RELEASE_ALLOCATION_AFTER_COMMIT = "release_allocation.after_commit"
    FORCE_RELEASE_BEFORE_COMMIT = "force_release.before_commit"
    FORCE_RELEASE_AFTER_COMMIT = "force_release.after_commit"
    FORCE_CLEANUP_BEFORE_COMMIT = "force_cleanup.before_commit"
    FORCE_CLEANUP_AFTER_COMMIT = "force_cleanup.after_commit"
    HOLD_RESOURCES_BEFORE_COMMIT = "hold_resources.before_commit"
    HOLD_RESOURCES_AFTER_COMMIT = "hold_resources.after_commit"
    CONFIRM_RESERVATION_BEFORE_COMMIT = "confirm_reservation.before_commit"
    CONFIRM_RESERVATION_AFTER_COMMIT = "confirm_reservation.after_commit"
    COMMIT_TRANSACTIONS_BEFORE_COMMIT = "commit_transactions.before_commit"
    COMMIT_TRANSACTIONS_AFTER_COMMIT = "commit_transactions.after_commit"
    CANCEL_RESERVATION_BEFORE_COMMIT = "cancel_reservation.before_commit"
    CANCEL_RESERVATION_AFTER_COMMIT = "cancel_reservation.after_commit"
    EXPIRE_RESERVATION_BEFORE_COMMIT = "expire_reservation.before_commit"
    EXPIRE_RESERVATION_AFTER_COMMIT = "expire_reservation.after_commit"
    END_WINDOW_BEFORE_COMMIT = "end_window.before_commit"
    END_WINDOW_AFTER_COMMIT = "end_window.after_commit"
    RETIRE_RESERVATIONS_BEFORE_COMMIT = "retire_reservations.before_commit"
    RETIRE_RESERVATIONS_AFTER_COMMIT = "retire_reservations.after_commit"
    CONSUME_RESERVATION_BEFORE_COMMIT = "consume_reservation.before_commit"
    CONSUME_RESERVATION_AFTER_COMMIT = "consume_reservation.after_commit"
    START_RESERVATION_BEFORE_COMMIT = "start_reservation.before_commit"
    START_RESERVATION_AFTER_COMMIT = "start_reservation.after_commit"
    MOVE_RESERVATION_BEFORE_COMMIT = "move_reservation.before_commit"
    MOVE_RESERVATION_AFTER_COMMIT = "move_reservation.after_commit"
    FAIL_RESERVATION_BEFORE_COMMIT = "fail_reservation.before_commit"
    FAIL_RESERVATION_AFTER_COMMIT = "fail_reservation.after_commit"
    START_WAITING_BEFORE_COMMIT = "start_waiting.before_commit"
    START_WAITING_AFTER_COMMIT = "start_waiting.after_commit"
    NOTIFY_EXPIRY_BEFORE_COMMIT = "notify_expiry.before_commit"
    NOTIFY_EXPIRY_AFTER_COMMIT = "notify_expiry.after_commit"
    RELEASE_AT_END_BEFORE_COMMIT = "release_at_end.before_commit"
    RELEASE_AT_END_AFTER_COMMIT = "release_at_end.after_commit"
    TOP_UP_BALANCE_BEFORE_COMMIT = "top_up_balance.before_commit"
    TOP_UP_BALANCE_AFTER_COMMIT = "top_up_balance.after_commit"
    EVALUATE_BALANCE_BEFORE_COMMIT = "evaluate_balance.before_commit"
    EVALUATE_BALANCE_AFTER_COMMIT = "evaluate_balance.after_commit"
    RELEASE_FOR_BILLING_BEFORE_COMMIT = "release_for_billing.before_commit"
    RELEASE_FOR_BILLING_AFTER_COMMIT = "release_for_billing.after_commit"
    LEASE_TASKS_BEFORE_COMMIT = "lease_tasks.before_commit"
    LEASE_TASKS_AFTER_COMMIT = "lease_tasks.after_commit"
    ACCEPT_TASK_RESULT_BEFORE_COMMIT = "accept_task_result.before_commit"
    ACCEPT_TASK_RESULT_AFTER_COMMIT = "accept_task_result.after_commit"
    ENROL_NODE_BEFORE_COMMIT = "enrol_node.before_commit"
    ENROL_NODE_AFTER_COMMIT = "enrol_node.after_commit"
    RENEW_CERTIFICATE_BEFORE_COMMIT = "renew_certificate.before_commit"
    RENEW_CERTIFICATE_AFTER_COMMIT = "renew_certificate.after_commit"
    BEGIN_PROVISIONING_BEFORE_COMMIT = "begin_provisioning.before_commit"
    BEGIN_PROVISIONING_AFTER_COMMIT = "begin_provisioning.after_commit"
    FINISH_PROVISIONING_BEFORE_COMMIT = "finish_provisioning.before_commit"
    FINISH_PROVISIONING_AFTER_COMMIT = "finish_provisioning.after_commit"
    BEGIN_RELEASE_BEFORE_COMMIT = "begin_release.before_commit"
    BEGIN_RELEASE_AFTER_COMMIT = "begin_release.after_commit"
    FINISH_RELEASE_BEFORE_COMMIT = "finish_release.before_commit"
    FINISH_RELEASE_AFTER_COMMIT = "finish_release.after_commit"
    FAIL_UNSTARTED_BEFORE_COMMIT = "fail_unstarted.before_commit"
    FAIL_UNSTARTED_AFTER_COMMIT = "fail_unstarted.after_commit"
    TAKE_OVER_WAIT_BEFORE_COMMIT = "take_over_wait.before_commit"
    TAKE_OVER_WAIT_AFTER_COMMIT = "take_over_wait.after_commit"
    EXPIRE_TASK_BEFORE_COMMIT = "expire_task.before_commit"
    EXPIRE_TASK_AFTER_COMMIT = "expire_task.after_commit"
    REPORT_ORPHAN_BEFORE_COMMIT = "report_orphan.before_commit"
    REPORT_ORPHAN_AFTER_COMMIT = "report_orphan.after_commit"
    ADVANCE_ORPHAN_BEFORE_COMMIT = "advance_orphan.before_commit"
    ADVANCE_ORPHAN_AFTER_COMMIT = "advance_orphan.after_commit"
    MARK_NODE_OFFLINE_BEFORE_COMMIT = "mark_node_offline.before_commit"
    MARK_NODE_OFFLINE_AFTER_COMMIT = "mark_node_offline.after_commit"
    BURY_EVENT_BEFORE_COMMIT = "bury_event.before_commit"
    BURY_EVENT_AFTER_COMMIT = "bury_event.after_commit"
    SETTLE_RETRY_BEFORE_COMMIT = "settle_retry.before_commit"
    SETTLE_RETRY_AFTER_COMMIT = "settle_retry.after_commit"
    RAISE_CONSUMER_POSITION_BEFORE_COMMIT = "raise_consumer_position.before_commit"
    RAISE_CONSUMER_POSITION_AFTER_COMMIT = "raise_consumer_position.after_commit"
    TRUNCATE_LOG_BEFORE_COMMIT = "truncate_log.before_commit"
    TRUNCATE_LOG_AFTER_COMMIT = "truncate_log.after_commit"
    METERING_BEFORE_COMMIT = "metering.before_commit"
    METERING_AFTER_COMMIT = "metering.after_commit"
    ENQUEUE_DELIVERIES_BEFORE_COMMIT = "enqueue_deliveries.before_commit"
    ENQUEUE_DELIVERIES_AFTER_COMMIT = "enqueue_deliveries.after_commit"
    LEASE_DELIVERIES_BEFORE_COMMIT = "lease_deliveries.before_commit"
    LEASE_DELIVERIES_AFTER_COMMIT = "lease_deliveries.after_commit"
    RECORD_ATTEMPT_BEFORE_COMMIT = "record_attempt.before_commit"
    RECORD_ATTEMPT_AFTER_COMMIT = "record_attempt.after_commit"
    EVENT_BEFORE_DISPATCH = "event.before_dispatch"
    EVENT_BEFORE_ACKNOWLEDGEMENT = "event.before_acknowledgement"
    EVENT_AFTER_ACKNOWLEDGEMENT = "event.after_acknowledgement"
    RESCUE_BEFORE_START = "rescue.before_start"
    RESCUE_AFTER_START = "rescue.after_start"
    OTHER_COMMAND_BEFORE_COMMIT = "other_command.before_commit"
    OTHER_COMMAND_AFTER_COMMIT = "other_command.after_commit"


_labels = frozenset(point.value for point in CrashPoint)


def reach_commit(work: Callable[..., object], moment: Moment) -> None:
    """Reach the commit of the command whose function defines `work`: it is about to commit, or has committed."""
    if is_installed():
        label = f"{work.__qualname__.partition('.')[0]}.{moment}"
        reach(CrashPoint(label if label in _labels else f"other_command.{moment}"))
