"""Which streams may carry the log, and where publishing may go on."""

from __future__ import annotations

from typing import Any

import pytest
from nats.js.api import RetentionPolicy, StorageType, StreamSource

from outbox_relay.problems import PublishingStopped
from outbox_relay.settings import Settings
from outbox_relay.stream import dangers_of, first_version_to_publish, require_safe_configuration, wanted_configuration

SETTINGS = Settings(database_url="postgresql://none", nats_url="nats://none", log_stream_replicas=3)
WANTED = wanted_configuration(SETTINGS, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"retention": RetentionPolicy.INTEREST},
        {"storage": StorageType.MEMORY},
        {"subjects": ["berth.events.>", "more"]},
        {"allow_atomic": None},
        {"no_ack": True},
        {"max_bytes": 10**12},
        {"max_msgs_per_subject": 1},
        {"num_replicas": 1},
        {"max_age": 3_600.0},
        {"duplicate_window": 120.0},
        {"sources": [StreamSource(name="OTHER")]},
    ],
)
def test_dangerous_configuration_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PublishingStopped) as stopped:
        require_safe_configuration(WANTED.evolve(**change), SETTINGS)
    assert stopped.value.reason == "stream_configuration"


@pytest.mark.parametrize(
    "change", [{}, {"max_age": 0.0}, {"num_replicas": 5}, {"max_msg_size": 1_000}, {"max_msgs": 0}]
)
def test_harmless_difference_is_not(change: dict[str, Any]) -> None:
    require_safe_configuration(WANTED.evolve(**change), SETTINGS)
    assert dangers_of(WANTED.evolve(**change), SETTINGS) == []


def test_publishing_goes_on_behind_the_stream() -> None:
    assert first_version_to_publish(7, 9, 1) == 8
    assert first_version_to_publish(9, 9, 5) == 10
    assert first_version_to_publish(0, 0, None) == 1
    for last, head, lowest, reason in ((10, 9, 1, "nats_ahead"), (3, 9, 5, "gap")):
        with pytest.raises(PublishingStopped) as stopped:
            first_version_to_publish(last, head, lowest)
        assert stopped.value.reason == reason
