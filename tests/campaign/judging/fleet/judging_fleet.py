"""Every check on changes of fleet and catalogue that a history alone can answer."""

from __future__ import annotations

from tests.campaign.history import History
from tests.campaign.judging.fleet.judging_catalogue import check_changes, check_offers_ended, check_prices
from tests.campaign.judging.fleet.judging_certificates import check_successors, check_uses
from tests.campaign.judging.fleet.judging_maintenance import check_maintenance
from tests.campaign.judging.fleet.judging_nodes_end import check_states
from tests.campaign.judging.fleet.judging_service import check_emptied, check_service
from tests.campaign.judging.judging_clients import Violation


def judge_fleet(history: History) -> list[Violation]:
    """What operators and the subscriber saw broken."""
    checks = (
        check_service, check_emptied, check_maintenance, check_changes, check_offers_ended, check_prices, check_uses,
        check_successors, check_states,
    )  # fmt: skip
    return [violation for check in checks for violation in check(history)]
