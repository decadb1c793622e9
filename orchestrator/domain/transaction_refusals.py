"""How transactions of keys and values are refused (docs/kv.md)."""

from __future__ import annotations

from orchestrator.domain.errors import Problem


class RangeInvalid(Problem):
    """A range's end is not beyond its begin."""

    status, code, title = 400, "range_invalid", "Range invalid"


class VersionMissing(Problem):
    """A precondition names no version, and the commit no `read_version`."""

    status, code, title = 400, "version_missing", "Version missing"


class VersionInFuture(Problem):
    """A version that nobody was told: the log does not reach that far; `version` says how far it does."""

    status, code, title = 400, "version_in_future", "Version in future"


class NamespaceFull(Problem):
    """The namespace would pass its bound on keys or on bytes."""

    status, code, title, business = 409, "namespace_full", "Namespace full", True


class LeaderUnaccepted(Problem):
    """This Postgres is not the one that the log is written by, until an operator says so: no version can be told."""

    status, code, title = 503, "leader_unaccepted", "Leader unaccepted"
    retry_after_seconds = 5
