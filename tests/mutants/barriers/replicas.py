"""Mutants of reads that standbys serve: of the nouns database, log and verification."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_OF = "orchestrator/database/replicas/"
_TESTS = "tests/database/replicas/"

MUTANTS: list[Mutant] = [
    Mutant(
        "a standby serves a read that states no version",
        "database",
        f"{_OF}reads.py",
        "asked is not None and asked.is_stated else None",
        "asked is not None else None",
        (f"{_TESTS}test_reading.py::test_a_read_that_states_a_version_is_served_by_the_standby",),
    ),
    Mutant(
        "a standby serves a version that it has not replayed",
        "database",
        f"{_OF}replica.py",
        "if head.version < at_least:",
        "if False:",
        (f"{_TESTS}test_reading.py::test_the_primary_serves_a_version_that_the_standby_does_not_reach",),
    ),
    Mutant(
        "a server that was promoted serves as a standby",
        "database",
        f"{_OF}replica.py",
        "if not head.in_recovery:",
        "if False:",
        (f"{_TESTS}test_losing.py::test_a_standby_that_was_promoted_serves_nothing",),
    ),
    Mutant(
        "the leader of a standby is compared once a second alone",
        "database",
        f"{_OF}replica.py",
        "if head.leader_id != fit.leader_id:",
        "if False:",
        (f"{_TESTS}test_reading.py::test_a_standby_whose_leader_has_changed_since_it_was_examined_serves_nothing",),
    ),
    Mutant(
        "a standby of a deposed primary serves",
        "database",
        f"{_OF}rules.py",
        "if not primary.leader_id == primary.accepted_leader_id == standby.leader_id:",
        "if False:",
        (f"{_TESTS}test_losing.py::test_a_standby_of_a_deposed_primary_serves_nothing",),
    ),
    Mutant(
        "the content of a standby is not compared",
        "database",
        f"{_OF}rules.py",
        "if standby.event_id != event_id:",
        "if False:",
        (f"{_TESTS}test_losing.py::test_a_copy_of_the_installation_serves_nothing",),
    ),
    Mutant(
        "a standby that lags serves as long as another",
        "database",
        f"{_OF}rules.py",
        "until = min(covered[-1].asked + lag_seconds_max, primary.asked + VERIFIED_SECONDS_MAX)",
        "until = primary.asked + VERIFIED_SECONDS_MAX",
        (f"{_TESTS}test_judging.py::test_a_fit_standby_has_what_was_committed_before_the_bound",),
    ),
    Mutant(
        "a judgement holds without end",
        "database",
        f"{_OF}connections.py",
        "return self.fit is not None and time.monotonic() < self.fit.until",
        "return self.fit is not None",
        (f"{_TESTS}test_reading.py::test_a_standby_serves_no_longer_than_it_was_found_fit_for",),
    ),
    Mutant(
        "a round that began before a loss trusts a standby",
        "database",
        f"{_OF}watch.py",
        "if self._doubts != self._replica.doubts:",
        "if False:",
        (f"{_TESTS}test_reading.py::test_a_round_that_began_before_a_loss_trusts_nothing",),
    ),
    Mutant(
        "a standby refuses a read for good",
        "database",
        f"{_OF}replica.py",
        "raise NotServed(Cause.REFUSED) from refusal",
        "raise",
        (f"{_TESTS}test_reading.py::test_a_refusal_is_the_primarys",),
    ),
    Mutant(
        "each read finds out that a standby is dead",
        "database",
        f"{_OF}replica.py",
        "if refused.cause is Cause.LOST:",
        "if False:",
        (f"{_TESTS}test_losing.py::test_a_lost_standby_costs_the_reads_in_flight_and_no_others",),
    ),
    Mutant(
        "each read waits for a standby that lags",
        "database",
        f"{_OF}replica.py",
        "if at_least > self._newest_version and time.monotonic() < self._no_wait_until:",
        "if False:",
        (f"{_TESTS}test_reading.py::test_after_one_wait_in_vain_the_others_ask_the_standby_once",),
    ),
    Mutant(
        "standbys are trusted after the primary was lost",
        "database",
        "orchestrator/database/transactions.py",
        "self._pools.when_lost(replica.distrust)",
        "self._pools.when_lost(lambda: None)",
        (f"{_TESTS}test_losing.py::test_a_lost_connection_to_the_primary_stops_reads_of_standbys",),
    ),
    Mutant(
        "the feed skips what a standby has not replayed",
        "log",
        "orchestrator/log/queries.py",
        "end = until if reading.replayed is None else min(until, reading.replayed)",
        "end = until",
        (f"{_TESTS}test_routes.py::test_the_feed_catches_up_from_the_standby_and_goes_on_from_the_primary",),
    ),
    Mutant(
        "a read on a standby names no tenant",
        "database",
        f"{_OF}connections.py",
        "name_tenants(self.connection, tenants)",
        "name_tenants(self.connection, None)",
        (f"{_TESTS}test_routes.py::test_a_tenant_sees_nothing_of_another_on_the_standby",),
    ),
    Mutant(
        "a standby is verified on the primary",
        "verification",
        "berth/cli/deployment/verify.py",
        "run_checks(database_url, bounds) if standby_url is None else",
        "run_checks(database_url, bounds) if standby_url or not standby_url else",
        (f"{_TESTS}test_commands.py::test_the_standby_is_read_and_not_the_primary",),
    ),
]
