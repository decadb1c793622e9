"""Which scenario holds each crash point: the process that dies, what goes on meanwhile, and when it dies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from node_agent.crash_points import CrashPoint as AgentPoint
from orchestrator.crash_points import CrashPoint as ControlPoint
from outbox_relay.crash_points import CrashPoint as RelayPoint
from tests.crashes import (
    ailing,
    auditing,
    billing,
    committing,
    faulty,
    hooking,
    maintaining,
    plays,
    reserving,
    truncating,
    turning,
)
from tests.crashes.plays import Play
from tests.crashes.stage import FIRST_AGENT, SECOND_AGENT

API, NODE_API, ISSUER, RELAY, WORKER, WEBHOOKS = "api", "node-api", "issuer", "relay", "worker", "webhooks"


@dataclass(frozen=True)
class Scenario:
    """`process` dies when `point` is reached for the `number`-th time during `play`.

    `seed`: also in `make test`, with one for each process at least; all others run in `make test-full`.
    """

    point: StrEnum
    process: str
    play: Play
    number: int = 1
    seed: bool = False

    @property
    def name(self) -> str:
        """As pytest shows it."""
        return f"{self.process.split()[0]}-{self.point}-{self.number}-{self.play.__name__}"


SCENARIOS = [
    # Client and API.
    Scenario(ControlPoint.CREATE_ALLOCATIONS_BEFORE_COMMIT, API, plays.one_life),
    Scenario(ControlPoint.CREATE_ALLOCATIONS_AFTER_COMMIT, API, plays.one_life, seed=True),
    Scenario(ControlPoint.CREATE_ALLOCATIONS_AFTER_COMMIT, API, plays.three_lives, number=3),
    Scenario(ControlPoint.REFUSAL_BEFORE_COMMIT, API, plays.a_refusal),
    Scenario(ControlPoint.REFUSAL_AFTER_COMMIT, API, plays.a_refusal),
    Scenario(ControlPoint.UPDATE_ALLOCATION_BEFORE_COMMIT, API, turning.another_end),
    Scenario(ControlPoint.UPDATE_ALLOCATION_AFTER_COMMIT, API, turning.another_end),
    Scenario(ControlPoint.UPDATE_ALLOCATION_AFTER_COMMIT, API, turning.another_end, number=2),
    Scenario(ControlPoint.RELEASE_ALLOCATION_BEFORE_COMMIT, API, plays.one_life),
    Scenario(ControlPoint.RELEASE_ALLOCATION_AFTER_COMMIT, API, plays.one_life),
    Scenario(ControlPoint.RELEASE_ALLOCATION_AFTER_COMMIT, API, plays.three_lives, number=2),
    Scenario(ControlPoint.ORDER_VERB_BEFORE_COMMIT, API, plays.a_guest_changed),
    Scenario(ControlPoint.ORDER_VERB_AFTER_COMMIT, API, plays.a_guest_changed),
    Scenario(ControlPoint.FORCE_RELEASE_BEFORE_COMMIT, API, plays.an_end_by_force),
    Scenario(ControlPoint.FORCE_RELEASE_AFTER_COMMIT, API, plays.an_end_by_force),
    Scenario(ControlPoint.FORCE_CLEANUP_BEFORE_COMMIT, API, plays.an_end_on_an_admins_word),
    Scenario(ControlPoint.FORCE_CLEANUP_AFTER_COMMIT, API, plays.an_end_on_an_admins_word),
    Scenario(ControlPoint.HOLD_RESOURCES_BEFORE_COMMIT, API, reserving.a_reservation),
    Scenario(ControlPoint.HOLD_RESOURCES_AFTER_COMMIT, API, reserving.a_reservation),
    Scenario(ControlPoint.CONFIRM_RESERVATION_BEFORE_COMMIT, API, reserving.a_reservation),
    Scenario(ControlPoint.CONFIRM_RESERVATION_AFTER_COMMIT, API, reserving.a_reservation),
    Scenario(ControlPoint.COMMIT_TRANSACTIONS_BEFORE_COMMIT, API, committing.a_transaction),
    Scenario(ControlPoint.COMMIT_TRANSACTIONS_AFTER_COMMIT, API, committing.a_transaction),
    Scenario(ControlPoint.CANCEL_RESERVATION_BEFORE_COMMIT, API, reserving.a_reservation),
    Scenario(ControlPoint.CANCEL_RESERVATION_AFTER_COMMIT, API, reserving.a_reservation),
    Scenario(ControlPoint.EXPIRE_RESERVATION_BEFORE_COMMIT, WORKER, reserving.ends_by_themselves),
    Scenario(ControlPoint.EXPIRE_RESERVATION_AFTER_COMMIT, WORKER, reserving.ends_by_themselves),
    Scenario(ControlPoint.END_WINDOW_BEFORE_COMMIT, WORKER, reserving.ends_by_themselves),
    Scenario(ControlPoint.END_WINDOW_AFTER_COMMIT, WORKER, reserving.ends_by_themselves),
    Scenario(ControlPoint.RETIRE_RESERVATIONS_BEFORE_COMMIT, WORKER, reserving.ends_by_themselves),
    Scenario(ControlPoint.RETIRE_RESERVATIONS_AFTER_COMMIT, WORKER, reserving.ends_by_themselves),
    Scenario(ControlPoint.CONSUME_RESERVATION_BEFORE_COMMIT, API, turning.a_reservation_used),
    Scenario(ControlPoint.CONSUME_RESERVATION_AFTER_COMMIT, API, turning.a_reservation_used),
    Scenario(ControlPoint.START_RESERVATION_BEFORE_COMMIT, WORKER, turning.begins_and_ends_by_itself, seed=True),
    Scenario(ControlPoint.START_RESERVATION_AFTER_COMMIT, WORKER, turning.begins_and_ends_by_itself),
    Scenario(ControlPoint.MOVE_RESERVATION_BEFORE_COMMIT, WORKER, turning.moved_at_the_start),
    Scenario(ControlPoint.MOVE_RESERVATION_AFTER_COMMIT, WORKER, turning.moved_at_the_start),
    Scenario(ControlPoint.FAIL_RESERVATION_BEFORE_COMMIT, WORKER, turning.nowhere_to_start),
    Scenario(ControlPoint.FAIL_RESERVATION_AFTER_COMMIT, WORKER, turning.nowhere_to_start),
    Scenario(ControlPoint.START_WAITING_BEFORE_COMMIT, WORKER, turning.units_that_nobody_passed_on),
    Scenario(ControlPoint.START_WAITING_AFTER_COMMIT, WORKER, turning.units_that_nobody_passed_on),
    Scenario(ControlPoint.NOTIFY_EXPIRY_BEFORE_COMMIT, WORKER, turning.begins_and_ends_by_itself),
    Scenario(ControlPoint.NOTIFY_EXPIRY_AFTER_COMMIT, WORKER, turning.begins_and_ends_by_itself),
    Scenario(ControlPoint.RELEASE_AT_END_BEFORE_COMMIT, WORKER, turning.begins_and_ends_by_itself),
    Scenario(ControlPoint.RELEASE_AT_END_AFTER_COMMIT, WORKER, turning.begins_and_ends_by_itself),
    Scenario(ControlPoint.DELETE_TENANT_BEFORE_COMMIT, API, plays.a_tenant_is_deleted),
    Scenario(ControlPoint.DELETE_TENANT_AFTER_COMMIT, API, plays.a_tenant_is_deleted),
    Scenario(ControlPoint.OTHER_COMMAND_BEFORE_COMMIT, API, plays.a_tenant_is_made),
    Scenario(ControlPoint.OTHER_COMMAND_AFTER_COMMIT, API, plays.a_tenant_is_made),
    # Node and API.
    Scenario(ControlPoint.LEASE_TASKS_BEFORE_COMMIT, NODE_API, plays.one_life),
    Scenario(ControlPoint.LEASE_TASKS_AFTER_COMMIT, NODE_API, plays.one_life),
    Scenario(ControlPoint.LEASE_TASKS_AFTER_COMMIT, NODE_API, plays.one_life, number=2),
    Scenario(ControlPoint.ACCEPT_TASK_RESULT_BEFORE_COMMIT, NODE_API, plays.one_life, seed=True),
    Scenario(ControlPoint.ACCEPT_TASK_RESULT_AFTER_COMMIT, NODE_API, plays.one_life),
    Scenario(ControlPoint.ACCEPT_TASK_RESULT_AFTER_COMMIT, NODE_API, plays.one_life, number=2),
    # PostgreSQL, the relay and NATS.
    Scenario(RelayPoint.STREAM_AFTER_MADE, RELAY, plays.a_lost_stream),
    Scenario(RelayPoint.SEQUENCING_AFTER_COMMIT, RELAY, plays.one_life),
    Scenario(RelayPoint.SEQUENCING_AFTER_COMMIT, RELAY, plays.one_life, number=4),
    Scenario(RelayPoint.PUBLISHING_BEFORE_SEND, RELAY, plays.one_life),
    Scenario(RelayPoint.PUBLISHING_AFTER_SEND, RELAY, plays.one_life, seed=True),
    Scenario(RelayPoint.PUBLISHING_AFTER_SEND, RELAY, plays.three_lives, number=5),
    Scenario(RelayPoint.PUBLISHING_AFTER_STORED, RELAY, plays.one_life),
    # NATS, the worker and Temporal.
    Scenario(ControlPoint.EVENT_BEFORE_DISPATCH, WORKER, plays.one_life),
    Scenario(ControlPoint.EVENT_BEFORE_DISPATCH, WORKER, plays.one_life, number=2),
    Scenario(ControlPoint.EVENT_BEFORE_ACKNOWLEDGEMENT, WORKER, plays.one_life, seed=True),
    Scenario(ControlPoint.EVENT_BEFORE_ACKNOWLEDGEMENT, WORKER, plays.three_lives, number=4),
    Scenario(ControlPoint.EVENT_AFTER_ACKNOWLEDGEMENT, WORKER, plays.one_life),
    Scenario(ControlPoint.BURY_EVENT_BEFORE_COMMIT, WORKER, plays.an_event_nobody_can_read),
    Scenario(ControlPoint.BURY_EVENT_AFTER_COMMIT, WORKER, plays.an_event_nobody_can_read),
    Scenario(ControlPoint.SETTLE_RETRY_BEFORE_COMMIT, WORKER, plays.an_event_nobody_can_read),
    Scenario(ControlPoint.SETTLE_RETRY_AFTER_COMMIT, WORKER, plays.an_event_nobody_can_read),
    Scenario(ControlPoint.RAISE_CONSUMER_POSITION_BEFORE_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.RAISE_CONSUMER_POSITION_AFTER_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.RECORD_REQUESTS_BEFORE_COMMIT, API, auditing.refusals_are_recorded, seed=True),
    Scenario(ControlPoint.RECORD_REQUESTS_BEFORE_COMMIT, API, auditing.refusals_are_recorded, number=2),
    Scenario(ControlPoint.RECORD_REQUESTS_AFTER_COMMIT, API, auditing.refusals_are_recorded),
    Scenario(ControlPoint.NOTE_BREAK_GLASS_USE_BEFORE_COMMIT, API, auditing.a_break_glass_key_is_used),
    Scenario(ControlPoint.NOTE_BREAK_GLASS_USE_AFTER_COMMIT, API, auditing.a_break_glass_key_is_used),
    Scenario(ControlPoint.CHAIN_AUDIT_BEFORE_COMMIT, API, auditing.the_audit_is_read),
    Scenario(ControlPoint.CHAIN_AUDIT_AFTER_COMMIT, API, auditing.the_audit_is_read),
    Scenario(ControlPoint.CHAIN_AUDIT_BEFORE_COMMIT, WORKER, auditing.the_audit_is_chained),
    Scenario(ControlPoint.CHAIN_AUDIT_AFTER_COMMIT, WORKER, auditing.the_audit_is_chained),
    Scenario(ControlPoint.TRUNCATE_LOG_BEFORE_COMMIT, WORKER, truncating.the_log_is_truncated),
    Scenario(ControlPoint.TRUNCATE_LOG_AFTER_COMMIT, WORKER, truncating.the_log_is_truncated),
    Scenario(ControlPoint.ENQUEUE_DELIVERIES_BEFORE_COMMIT, WEBHOOKS, hooking.messages_to_a_webhook),
    Scenario(ControlPoint.ENQUEUE_DELIVERIES_AFTER_COMMIT, WEBHOOKS, hooking.messages_to_a_webhook),
    Scenario(ControlPoint.LEASE_DELIVERIES_BEFORE_COMMIT, WEBHOOKS, hooking.messages_to_a_webhook),
    Scenario(ControlPoint.LEASE_DELIVERIES_AFTER_COMMIT, WEBHOOKS, hooking.messages_to_a_webhook),
    Scenario(ControlPoint.RECORD_ATTEMPT_BEFORE_COMMIT, WEBHOOKS, hooking.messages_to_a_webhook, seed=True),
    Scenario(ControlPoint.RECORD_ATTEMPT_AFTER_COMMIT, WEBHOOKS, hooking.messages_to_a_webhook),
    # Billing.
    Scenario(ControlPoint.METERING_BEFORE_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.METERING_AFTER_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.TOP_UP_BALANCE_BEFORE_COMMIT, API, billing.a_balance_is_used_up),
    Scenario(ControlPoint.TOP_UP_BALANCE_AFTER_COMMIT, API, billing.a_balance_is_used_up),
    Scenario(ControlPoint.EVALUATE_BALANCE_BEFORE_COMMIT, WORKER, billing.a_balance_is_used_up),
    Scenario(ControlPoint.EVALUATE_BALANCE_AFTER_COMMIT, WORKER, billing.a_balance_is_used_up),
    Scenario(ControlPoint.RELEASE_FOR_BILLING_BEFORE_COMMIT, WORKER, billing.a_balance_is_used_up),
    Scenario(ControlPoint.RELEASE_FOR_BILLING_AFTER_COMMIT, WORKER, billing.a_balance_is_used_up),
    # Temporal, the worker and PostgreSQL.
    Scenario(ControlPoint.BEGIN_PROVISIONING_BEFORE_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.BEGIN_PROVISIONING_AFTER_COMMIT, WORKER, plays.one_life, seed=True),
    Scenario(ControlPoint.FINISH_PROVISIONING_BEFORE_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.FINISH_PROVISIONING_AFTER_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.BEGIN_RELEASE_BEFORE_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.BEGIN_RELEASE_AFTER_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.FINISH_RELEASE_BEFORE_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.FINISH_RELEASE_AFTER_COMMIT, WORKER, plays.one_life),
    Scenario(ControlPoint.FINISH_RELEASE_AFTER_COMMIT, WORKER, plays.an_end_by_force),
    Scenario(ControlPoint.BEGIN_VERB_BEFORE_COMMIT, WORKER, plays.a_guest_changed),
    Scenario(ControlPoint.BEGIN_VERB_AFTER_COMMIT, WORKER, plays.a_guest_changed, seed=True),
    Scenario(ControlPoint.FINISH_VERB_BEFORE_COMMIT, WORKER, plays.a_guest_changed),
    Scenario(ControlPoint.FINISH_VERB_AFTER_COMMIT, WORKER, plays.a_guest_changed),
    # The rescuer.
    Scenario(ControlPoint.RESCUE_BEFORE_START, WORKER, plays.a_start_that_never_came),
    Scenario(ControlPoint.RESCUE_AFTER_START, WORKER, plays.a_start_that_never_came),
    Scenario(ControlPoint.FAIL_UNSTARTED_BEFORE_COMMIT, WORKER, plays.a_start_that_never_came),
    Scenario(ControlPoint.FAIL_UNSTARTED_AFTER_COMMIT, WORKER, plays.a_start_that_never_came),
    Scenario(ControlPoint.TAKE_OVER_WAIT_BEFORE_COMMIT, WORKER, plays.a_workflow_that_vanished),
    Scenario(ControlPoint.TAKE_OVER_WAIT_AFTER_COMMIT, WORKER, plays.a_workflow_that_vanished),
    Scenario(ControlPoint.RESCUE_AFTER_START, WORKER, plays.a_workflow_that_vanished),
    Scenario(ControlPoint.EXPIRE_TASK_BEFORE_COMMIT, WORKER, plays.a_task_that_nobody_ended),
    Scenario(ControlPoint.EXPIRE_TASK_AFTER_COMMIT, WORKER, plays.a_task_that_nobody_ended),
    Scenario(ControlPoint.REPORT_ORPHAN_BEFORE_COMMIT, WORKER, plays.an_orphan),
    Scenario(ControlPoint.REPORT_ORPHAN_AFTER_COMMIT, WORKER, plays.an_orphan),
    Scenario(ControlPoint.ADVANCE_ORPHAN_BEFORE_COMMIT, WORKER, plays.an_orphan),
    Scenario(ControlPoint.ADVANCE_ORPHAN_AFTER_COMMIT, WORKER, plays.an_orphan),
    Scenario(ControlPoint.MARK_NODE_OFFLINE_BEFORE_COMMIT, WORKER, plays.a_node_falls_silent),
    Scenario(ControlPoint.MARK_NODE_OFFLINE_AFTER_COMMIT, WORKER, plays.a_node_falls_silent),
    Scenario(ControlPoint.PASS_HEALTH_DEADLINE_BEFORE_COMMIT, WORKER, ailing.a_lost_allocation),
    Scenario(ControlPoint.PASS_HEALTH_DEADLINE_AFTER_COMMIT, WORKER, ailing.a_lost_allocation),
    Scenario(ControlPoint.PASS_HEALTH_DEADLINE_AFTER_COMMIT, WORKER, ailing.a_lost_allocation, number=2),
    Scenario(ControlPoint.DEGRADE_UNNOTICED_BEFORE_COMMIT, WORKER, ailing.an_offline_node_with_an_allocation),
    Scenario(ControlPoint.DEGRADE_UNNOTICED_AFTER_COMMIT, WORKER, ailing.an_offline_node_with_an_allocation),
    # Hardware.
    Scenario(ControlPoint.REPORT_FAULT_BEFORE_COMMIT, API, faulty.a_faulty_allocation_is_replaced),
    Scenario(ControlPoint.REPORT_FAULT_AFTER_COMMIT, API, faulty.a_faulty_allocation_is_replaced),
    Scenario(ControlPoint.CONCLUDE_REPLACEMENT_BEFORE_COMMIT, WORKER, faulty.a_faulty_allocation_is_replaced),
    Scenario(ControlPoint.CONCLUDE_REPLACEMENT_AFTER_COMMIT, WORKER, faulty.a_faulty_allocation_is_replaced),
    Scenario(ControlPoint.RETURN_SLOT_BEFORE_COMMIT, API, faulty.a_faulty_allocation_is_replaced),
    Scenario(ControlPoint.RETURN_SLOT_AFTER_COMMIT, API, faulty.a_faulty_allocation_is_replaced),
    Scenario(ControlPoint.ISSUE_DISCOVERY_BEFORE_COMMIT, WORKER, faulty.a_node_is_discovered),
    Scenario(ControlPoint.ISSUE_DISCOVERY_AFTER_COMMIT, WORKER, faulty.a_node_is_discovered),
    Scenario(ControlPoint.TAKE_DISCOVERY_BEFORE_COMMIT, WORKER, faulty.a_node_is_discovered),
    Scenario(ControlPoint.TAKE_DISCOVERY_AFTER_COMMIT, WORKER, faulty.a_node_is_discovered),
    # Maintenance windows: the first commit of the worker starts one, the second ends it. Of the four of its tasks, two begin.
    Scenario(ControlPoint.COMMIT_MAINTENANCE_BEFORE_COMMIT, API, maintaining.a_window_with_a_task),
    Scenario(ControlPoint.COMMIT_MAINTENANCE_AFTER_COMMIT, API, maintaining.a_window_with_a_task),
    Scenario(ControlPoint.ADVANCE_WINDOW_BEFORE_COMMIT, WORKER, maintaining.a_window_with_a_task),
    Scenario(ControlPoint.ADVANCE_WINDOW_AFTER_COMMIT, WORKER, maintaining.a_window_with_a_task),
    Scenario(ControlPoint.ADVANCE_WINDOW_BEFORE_COMMIT, WORKER, maintaining.a_window_with_a_task, number=2),
    Scenario(ControlPoint.ADVANCE_WINDOW_AFTER_COMMIT, WORKER, maintaining.a_window_with_a_task, number=2),
    Scenario(ControlPoint.ADVANCE_TASK_BEFORE_COMMIT, WORKER, maintaining.a_window_with_a_task),
    Scenario(ControlPoint.ADVANCE_TASK_AFTER_COMMIT, WORKER, maintaining.a_window_with_a_task),
    Scenario(ControlPoint.ADVANCE_TASK_BEFORE_COMMIT, WORKER, maintaining.a_window_with_a_task, number=2),
    Scenario(ControlPoint.ADVANCE_TASK_AFTER_COMMIT, WORKER, maintaining.a_window_with_a_task, number=2),
    # The agent, its journal and the node. The first task provisions, the second releases.
    Scenario(AgentPoint.TASK_BEFORE_ACCEPTED, FIRST_AGENT, plays.one_life),
    Scenario(AgentPoint.TASK_AFTER_ACCEPTED, FIRST_AGENT, plays.one_life),
    Scenario(AgentPoint.TASK_AFTER_ACCEPTED, FIRST_AGENT, plays.one_life, number=2),
    Scenario(AgentPoint.EFFECT_BEFORE_JOURNALED, FIRST_AGENT, plays.an_effect_cut_short),
    Scenario(AgentPoint.EFFECT_BEFORE_BEGINNING, FIRST_AGENT, plays.an_effect_cut_short),
    Scenario(AgentPoint.EFFECT_BEFORE_BEGINNING, FIRST_AGENT, plays.an_effect_cut_short, number=2),
    Scenario(AgentPoint.EFFECT_AT_PHASE, FIRST_AGENT, plays.an_effect_cut_short),
    Scenario(AgentPoint.EFFECT_AT_PHASE, FIRST_AGENT, plays.an_effect_cut_short, number=4),
    Scenario(AgentPoint.EFFECT_AT_PHASE, FIRST_AGENT, plays.an_effect_cut_short, number=7),
    Scenario(AgentPoint.EFFECT_AFTER_END, FIRST_AGENT, plays.an_effect_cut_short, seed=True),
    Scenario(AgentPoint.EFFECT_AFTER_END, FIRST_AGENT, plays.an_effect_cut_short, number=2),
    # The agent and the node listener.
    Scenario(AgentPoint.REPORT_BEFORE_SEND, FIRST_AGENT, plays.one_life),
    Scenario(AgentPoint.REPORT_AFTER_ANSWER, FIRST_AGENT, plays.one_life),
    Scenario(AgentPoint.REPORT_AFTER_ANSWER, FIRST_AGENT, plays.one_life, number=2),
    Scenario(AgentPoint.REPORT_AFTER_JOURNALED, FIRST_AGENT, plays.one_life),
    # A node's identity.
    Scenario(ControlPoint.ENROL_NODE_BEFORE_COMMIT, API, plays.an_enrolment),
    Scenario(ControlPoint.ENROL_NODE_AFTER_COMMIT, API, plays.an_enrolment),
    Scenario(AgentPoint.ENROLMENT_BEFORE_REQUEST, SECOND_AGENT, plays.an_enrolment),
    Scenario(AgentPoint.ENROLMENT_AFTER_ANSWER, SECOND_AGENT, plays.an_enrolment),
    Scenario(AgentPoint.ENROLMENT_AFTER_STORED, SECOND_AGENT, plays.an_enrolment),
    Scenario(ControlPoint.RENEW_CERTIFICATE_BEFORE_COMMIT, NODE_API, plays.a_renewal),
    Scenario(ControlPoint.RENEW_CERTIFICATE_AFTER_COMMIT, NODE_API, plays.a_renewal),
    Scenario(ControlPoint.ISSUE_CERTIFICATE_BEFORE_COMMIT, ISSUER, plays.an_enrolment),
    Scenario(ControlPoint.ISSUE_CERTIFICATE_AFTER_COMMIT, ISSUER, plays.an_enrolment),
    Scenario(ControlPoint.ISSUE_CERTIFICATE_BEFORE_COMMIT, ISSUER, plays.a_renewal_by_the_next_issuer, number=2),
    Scenario(ControlPoint.ISSUE_CERTIFICATE_AFTER_COMMIT, ISSUER, plays.a_renewal_by_the_next_issuer, number=2),
    Scenario(AgentPoint.RENEWAL_AFTER_ANSWER, SECOND_AGENT, plays.a_renewal),
]
