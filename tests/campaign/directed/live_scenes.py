"""Which planted bug shows in which scene with API processes, and to which checks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.campaign.directed import keys_and_values, subscribing
from tests.campaign.directed.serving import LiveScene

Play = Callable[[LiveScene], Coroutine[Any, Any, None]]

LIVE_SCENES: list[tuple[str, Play, tuple[str, ...]]] = [
    ("preconditions_ignored", keys_and_values.two_that_read_the_same, ("no lost update",)),
    ("deletes_unmarked", keys_and_values.a_delete_after_the_read, ("no lost update",)),
    ("deletes_forgotten", keys_and_values.a_read_after_the_delete, ("read at its version", "state at the end")),
    ("conflicts_of_other_keys", keys_and_values.another_key_that_changes, ("refused with a cause",)),
    ("commits_not_remembered", keys_and_values.one_key_through_two_processes, ("one effect", "same answer")),
    ("reads_without_waiting", keys_and_values.a_read_of_what_has_no_version, ("read at its version",)),
    ("reads_from_cache", keys_and_values.a_read_after_a_commit, ("only forward",)),
    ("version_before_in_response", keys_and_values.a_read_after_a_commit, ("as committed",)),
    ("status_without_log", keys_and_values.a_question_after_a_commit, ("status of a commit",)),
    ("feed_skips_at_page_boundary", subscribing.more_than_one_page, ("nothing missed", "chain")),
    ("feed_of_every_tenant", subscribing.events_of_two_tenants, ("own events only",)),
    ("socket_resumes_too_far", subscribing.a_socket_that_comes_back, ("resumes where acknowledged",)),
    ("truncation_unnoticed", subscribing.a_subscriber_behind_the_log, ("nothing missed", "chain")),
    ("policies_ignored", subscribing.a_policy_before_the_truncation, ("kept by a policy",)),
    ("checkpoints_ahead", subscribing.a_filtered_stream_that_comes_back, ("nothing missed",)),
    ("feed_repeats_when_attached", subscribing.a_subscriber_that_comes_back, ("no repetition",)),
    ("feed_without_operation_keys", subscribing.a_commit_in_the_feed, ("as in the stream",)),
]


def apis_of(play: Play) -> int:
    """How many API processes the scene has."""
    return 2 if play is keys_and_values.one_key_through_two_processes else 1
