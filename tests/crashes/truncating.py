"""What goes on while a process dies that drops a part of the log."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from tests.crashes.stage import LOG_VERSIONS_MIN, Stage
from tests.log.retention.partitions import append, cut_log, first
from tests.support.waiting import wait_for

PARTITION = 100


def the_log_is_truncated(stage: Stage) -> Iterator[None]:
    """What a policy held goes when it is let go of, in order and once, whatever happens meanwhile."""
    with psycopg.connect(stage.stack.endpoints.database_url, autocommit=True) as database:
        cut_log(database, PARTITION)
        begin = append(database, 1)
        stage.admin.put_retention_policy("crash-test", prevent_truncate=begin)
        end = append(database, LOG_VERSIONS_MIN + 2 * PARTITION)
        held = begin // PARTITION * PARTITION
        wait_for(lambda: first(database) == max(1, held), "everything before the policy is dropped")
        yield
        stage.admin.delete_retention_policy("crash-test")
        least = (end - LOG_VERSIONS_MIN) // PARTITION * PARTITION
        wait_for(lambda: first(database) >= least, "what it held is dropped too")
