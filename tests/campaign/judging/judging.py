"""Every check that a history alone can answer."""

from __future__ import annotations

from tests.campaign.history import History
from tests.campaign.judging.accounts.judging_ledger import judge_ledger
from tests.campaign.judging.accounts.judging_quotas import judge_quotas
from tests.campaign.judging.accounts.judging_webhooks import judge_webhooks
from tests.campaign.judging.fleet.judging_fleet import judge_fleet
from tests.campaign.judging.judging_clients import Violation, judge_clients
from tests.campaign.judging.judging_events import judge_events
from tests.campaign.judging.judging_operations import judge_operations
from tests.campaign.judging.judging_reads import judge_reads
from tests.campaign.judging.judging_reservations import judge_reservations
from tests.campaign.judging.judging_rights import judge_rights
from tests.campaign.judging.judging_windows import judge_windows
from tests.campaign.keyvalue.judging_keys import judge_keys
from tests.campaign.listening.judging_sessions import judge_sessions
from tests.campaign.machines.judging_machines import judge_machines


def judge_history(history: History) -> list[Violation]:
    """What clients, the subscriber and both together saw broken."""
    judges = (
        judge_clients, judge_reads, judge_operations, judge_reservations, judge_rights, judge_windows, judge_events,
        judge_keys, judge_sessions, judge_webhooks, judge_ledger, judge_quotas, judge_fleet, judge_machines,
    )  # fmt: skip
    observed = [Violation(check, sentence) for check, sentence in history.observed]
    return [*observed, *(violation for judge in judges for violation in judge(history))]
