"""Checks of the key-value store: commits obey their preconditions, and reads are the state at their version.

Pure: the transactions of the stream, in the order of their versions, are the truth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from berth.client.keyvalue_models import Commit
from tests.campaign.history import Attempt, Delivery, History, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.kept_log import KeptLog
from tests.campaign.keyvalue.judging_order import check_order_of_commits
from tests.campaign.keyvalue.namespace_model import NamespaceModel
from tests.campaign.keyvalue.records import OPERATORS, CommitContent, KeyRead

NOT_COMMITTED = "not_committed"


@dataclass(frozen=True)
class Answered:
    """A commit with a definite response."""

    key: str
    content: CommitContent
    commit: Commit
    ended: float


def judge_keys(history: History) -> list[Violation]:
    """Every check on commits, reads and status queries."""
    log = KeptLog(history)
    answered = answered_commits(history)
    found = [*_check_answers(log, answered), *_check_statuses(history, log), *check_order_of_commits(history)]
    contents = contents_of(history.attempts)
    namespaces = {one.namespace for one in contents.values()} | {read.namespace for read in history.key_reads}
    for namespace in sorted(namespaces):
        reads = [read for read in history.key_reads if read.namespace == namespace]
        found += _replay(log, namespace, reads, contents, {one.key: one.commit for one in answered})
    return found


def contents_of(attempts: Iterable[Attempt]) -> dict[str, CommitContent]:
    """The content of each commit's key. A key that was sent with several contents has that of its definite response."""
    found: dict[str, CommitContent] = {}
    commits = [attempt for attempt in attempts if attempt.kind == "commit"]
    for attempt in sorted(commits, key=lambda one: one.outcome in (Outcome.DONE, Outcome.REFUSED)):
        found[attempt.key] = CommitContent.of(attempt.content)
    return found


def answered_commits(history: History) -> list[Answered]:
    """Each commit's first definite response."""
    found: dict[str, Answered] = {}
    for attempt in sorted(history.attempts, key=lambda one: one.ended):
        if attempt.kind == "commit" and (attempt.outcome is Outcome.DONE or attempt.code == NOT_COMMITTED):
            commit = Commit.model_validate_json(attempt.answer)
            found.setdefault(
                attempt.key, Answered(attempt.key, CommitContent.of(attempt.content), commit, attempt.ended)
            )
    return list(found.values())


def _check_answers(log: KeptLog, answered: Iterable[Answered]) -> Iterator[Violation]:
    """The version in a response is that of the commit's event, whose operations are those that were sent."""
    places: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
    for event in log.events.values():
        if event.type in ("transaction", "operation.refused") and event.operation_key is not None:
            places[event.operation_key, event.type].append(event)
    for one in answered:
        committed = one.commit.status == "committed"
        events = places[one.key, "transaction" if committed else "operation.refused"]
        versions = [event.version for event in events]
        if one.commit.version not in versions:
            yield Violation(
                "as committed",
                f"{one.key}: {one.commit.status} at version {one.commit.version}, its events are {versions}",
            )
            continue
        event = log.events[one.commit.version]
        if (event.tenant_id or OPERATORS) != one.content.namespace:
            yield Violation("as committed", f"{one.key}: version {event.version} is in namespace {event.tenant_id}")
        if committed and list(event.data["operations"]) != [dict(member) for member in one.content.operations]:
            yield Violation("as committed", f"{one.key}: version {event.version} has other operations")


def _check_statuses(history: History, log: KeptLog) -> Iterator[Violation]:
    """A status query returns `committed` with the version of the event, and `id_not_found` only without an event, for ever."""
    versions = {e.operation_key: e.version for e in log.events.values() if e.type == "transaction"}
    for sight in history.commit_statuses:
        version = versions.get(sight.key)
        if sight.status == "committed" and sight.version != version:
            yield Violation("status of a commit", f"{sight.key}: committed at {sight.version}, the event is {version}")
        elif sight.status == "id_not_found" and version is not None:
            yield Violation("status of a commit", f"{sight.key}: id_not_found, and version {version} is its event")
        elif sight.status == "log_truncated" and not log.may_lack_at(sight.min_version + 1, sight.answered):
            yield Violation(
                "status of a commit", f"{sight.key}: log_truncated, the log still held {sight.min_version + 1}"
            )


def _replay(
    log: KeptLog,
    namespace: str,
    reads: Iterable[KeyRead],
    contents: Mapping[str, CommitContent],
    commits: Mapping[str, Commit],
) -> Iterator[Violation]:
    """Apply one transaction after another; judge each commit before it, each read after all up to its version."""
    model = NamespaceModel()
    waiting = sorted(reads, key=lambda read: read.read_version, reverse=True)
    for event in log.of(None):
        while waiting and waiting[-1].read_version < event.version:
            yield from _check_read(log, model, waiting.pop())
        if (event.tenant_id or OPERATORS) != namespace:
            continue
        key = event.operation_key or ""
        if event.type == "transaction":
            if key in contents:
                yield from _check_commit(model, event, contents[key])
            model.apply(event.data["operations"], event.version)
        elif event.type == "operation.refused" and event.data.get("code") == NOT_COMMITTED and key in contents:
            yield from _check_refusal(log, model, event, contents[key], commits.get(key))
    while waiting:
        yield from _check_read(log, model, waiting.pop())


def _check_commit(model: NamespaceModel, event: Delivery, content: CommitContent) -> Iterator[Violation]:
    for wanted in model.unsatisfied(content.preconditions):
        yield Violation(
            "no lost update",
            f"{event.operation_key} committed at version {event.version} although {dict(wanted)} was not satisfied:"
            f" changed at {model.last_change(wanted)}",
        )


def _check_refusal(
    log: KeptLog, model: NamespaceModel, event: Delivery, content: CommitContent, commit: Commit | None
) -> Iterator[Violation]:
    """The conflicts are the unsatisfied preconditions, and those at a version that the log no longer held."""
    if event.at is None:
        return
    unsatisfied = [dict(wanted) for wanted in model.unsatisfied(content.preconditions)]
    lacking = [dict(one) for one in content.preconditions if log.may_lack(int(one["version"]), event.at)]
    shown = unsatisfied if commit is None else commit.conflicts
    missing = [one for one in unsatisfied if one not in shown]
    more = [one for one in shown if one not in unsatisfied and one not in lacking]
    if missing or more or not (unsatisfied or lacking):
        yield Violation(
            "refused with a cause",
            f"{event.operation_key} was not committed (version {event.version}), with the conflicts {shown};"
            f" unsatisfied were {unsatisfied}",
        )


def _check_read(log: KeptLog, model: NamespaceModel, read: KeyRead) -> Iterator[Violation]:
    check = "state at the end" if read.final else "read at its version"
    state = model.between(read.begin, read.end)
    shown = {item.key: item for item in read.items}
    if {key: item.value for key, item in shown.items()} != {key: entry.value for key, entry in state.items()}:
        expected = {key: entry.value for key, entry in state.items()}
        yield Violation(check, f"{read.place} was {[(i.key, i.value) for i in read.items]}, and was to be {expected}")
        return
    for key, item in shown.items():
        version = state[key].version
        lacking = item.version is None and log.may_lack_at(version, read.answered)
        if item.version != version and not lacking:
            yield Violation(check, f"{read.place}: {key!r} changed at {version}, and the response says {item.version}")
