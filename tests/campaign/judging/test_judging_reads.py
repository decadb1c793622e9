"""An internal error in answer to a read is a violation, and no other end of a read is."""

from __future__ import annotations

import pytest

from tests.campaign.history import History
from tests.campaign.judging.judging_reads import judge_reads


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("get internal", 1),
        ("seat out http_500", 1),
        ("list unreadable_answer", 1),
        ("get ok", 0),
        ("get database_unavailable", 0),
        ("internal ok", 0),
    ],
)
def test_only_an_internal_error_is_found(what: str, found: int) -> None:
    history = History(seed=0)
    history.count_read(what)
    assert [violation.check for violation in judge_reads(history)] == ["foreseen"] * found
