"""Production's defaults fit together: a silent primary is left within 15 s, and a process has stopped 20 s after its signal."""

from __future__ import annotations

import inspect

import pytest

from berth.local import processes as local_processes
from berth.process.database_connections import ALIVE_SECONDS_MAX, ANSWER_SECONDS_MAX, AnsweringConnection
from orchestrator.database.calls import LINK
from orchestrator.database.transactions import connect_database
from orchestrator.edge import accepting, connections, listeners
from orchestrator.edge.ending import orderly_stop
from orchestrator.settings import Settings
from outbox_relay import relay
from tests.deploy.deployment import our_services
from worker import __main__ as worker_process
from worker.settings import Settings as WorkerSettings

ABANDONED_SECONDS_MAX = 15.0
STOPPED_SECONDS_MAX = 20.0
GRACEFUL: float = Settings.model_fields["graceful_stop_seconds"].default
RUNNING = {name: service for name, service in our_services().items() if service["restart"] == "unless-stopped"}


def test_a_frozen_primary_is_abandoned_in_time_by_every_process() -> None:
    parameters = inspect.signature(connect_database).parameters
    assert parameters["answer_seconds_max"].default == AnsweringConnection.answer_seconds_max == ANSWER_SECONDS_MAX
    # Within a statement; by the relay's thread, which another one watches; over a connection that was idle, and a new one.
    assert ANSWER_SECONDS_MAX + relay.SILENCE_LOOK_SECONDS <= ABANDONED_SECONDS_MAX
    assert ALIVE_SECONDS_MAX + LINK["connect_timeout"] <= ABANDONED_SECONDS_MAX


def test_a_commit_that_was_sent_before_the_signal_is_answered() -> None:
    assert GRACEFUL >= ANSWER_SECONDS_MAX + orderly_stop.ABANDONED_AFTER_SECONDS


def test_the_api_has_stopped_in_time() -> None:
    # Between the signal and the time for requests, and after it: the last answers, and what the lifespan of the listener writes.
    before = max(accepting.UNDER_WAY_SECONDS, orderly_stop.LAST_MESSAGES_SECONDS_MAX) + accepting.HAND_OVER_SECONDS_MAX
    last_writes = 3 * orderly_stop.ABANDONED_AFTER_SECONDS
    assert before + GRACEFUL + listeners.LAST_ANSWERS_SECONDS + last_writes <= STOPPED_SECONDS_MAX
    assert connections.STOPPING_IDLE_SECONDS + connections.STOPPING_LINGER_SECONDS < 1


def test_the_worker_and_the_relay_have_stopped_in_time() -> None:
    commands: float = WorkerSettings.model_fields["worker_graceful_stop_seconds"].default
    assert commands + worker_process.STOP_SECONDS_MAX <= STOPPED_SECONDS_MAX
    assert 4 * relay.STOP_SECONDS_MAX <= STOPPED_SECONDS_MAX


def test_a_local_stack_gives_its_processes_as_long() -> None:
    assert local_processes.STOP_SECONDS_MAX >= STOPPED_SECONDS_MAX


@pytest.mark.parametrize("name", RUNNING)
def test_a_container_is_not_killed_before(name: str) -> None:
    assert int(RUNNING[name]["stop_grace_period"].removesuffix("s")) > STOPPED_SECONDS_MAX
