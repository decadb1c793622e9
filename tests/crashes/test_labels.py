"""Every crash point is reached somewhere, held by a scenario and documented; commits of commands have their pair."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from berth.cli.deployment.archive import crash_points as archive_points
from berth.cli.deployment.backup import crash_points as backup_points
from berth.process import crash_points
from node_agent import crash_points as agent_points
from orchestrator import crash_points as control_points
from outbox_relay import crash_points as relay_points
from tests.crashes.scenarios import SCENARIOS
from tests.support.command_sources import command_trees

ROOT = Path(__file__).parents[2]
ENUMS: dict[type[StrEnum], tuple[str, ...]] = {
    control_points.CrashPoint: ("orchestrator", "worker"),
    relay_points.CrashPoint: ("outbox_relay",),
    agent_points.CrashPoint: ("node_agent",),
    archive_points.CrashPoint: ("berth/cli/deployment/archive",),
    backup_points.CrashPoint: ("berth/cli/deployment/backup",),
}
LABELS = [point for enum in ENUMS for point in enum]
DOORS = {"run_once", "transact"}
UNLABELLED = {
    # What these lose is sent again within seconds, and nothing waits for it.
    "lease_deploy_task", "record_heartbeat", "record_task_progress", "repeat_tasks",
    # What waits for its place in the log gets it from the relay as well.
    "sequence_events",
    # A lost challenge is asked for again, and replaces the one before.
    "challenge_deploy_system", "challenge_enrolment", "challenge_renewal",
    # A session of a machine's console is handed out once: one that is lost ends as `agent_absent`.
    "lease_machine_sessions",
    # An agent of a site repeats each with the same key, and the issuer its rounds.
    "enrol_agent", "renew_agent_certificate", "issue_to_agent", "lease_bmc_tasks", "note_answers",
}  # fmt: skip


@functools.cache
def points_named_in(*packages: str) -> list[str]:
    """Members that the modules of these packages name in calls of `reach`; few modules have a call, the others are not parsed."""
    sources = (path.read_text() for package in packages for path in sorted((ROOT / package).rglob("*.py")))
    return [name for source in sources if "reach" in source for name in named_points(ast.parse(source))]


def named_points(tree: ast.Module) -> Iterator[str]:
    """Members named in calls of `reach`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach":
            for argument in ast.walk(node.args[0]):
                if isinstance(argument, ast.Attribute):
                    yield argument.attr


def calls(tree: ast.Module) -> set[str]:
    """Names of everything that is called, methods included."""
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called}


def commits_of(commands: dict[str, set[str]]) -> set[str]:
    """Labels of the commits that `orchestrator/operations/execution.py` names after the command: from each command's calls."""
    through_a_door = {name for name, called in commands.items() if called & DOORS}
    return {f"{name}.{moment}" for name in through_a_door for moment in ("before_commit", "after_commit")}


def without_a_pair(commands: dict[str, set[str]], trees_of: dict[str, ast.Module]) -> set[str]:
    """Commands that open a transaction themselves and reach no pair of points around its commit."""
    opening = {name for name, called in commands.items() if called & {"transaction", "autocommit"}}
    return {
        name
        for name in opening - UNLABELLED
        if not {f"{name.upper()}_BEFORE_COMMIT", f"{name.upper()}_AFTER_COMMIT"} <= set(named_points(trees_of[name]))
    }


@pytest.mark.parametrize("enum", list(ENUMS), ids=lambda enum: enum.__module__)
def test_every_point_is_reached_in_the_code(enum: type[StrEnum]) -> None:
    reached = {str(enum[name]) for name in points_named_in(*ENUMS[enum])}
    if enum is control_points.CrashPoint:
        reached |= commits_of({name: calls(tree) for name, tree in command_trees().items()})
        reached |= {"other_command.before_commit", "other_command.after_commit"}
    assert sorted(set(enum) - reached) == []


def test_every_point_is_reached_in_one_way_only() -> None:
    """A commit that its door names is not named by hand as well: the count after a label would mean two things."""
    derived = commits_of({name: calls(tree) for name, tree in command_trees().items()})
    by_hand = {str(enum[name]) for enum, packages in ENUMS.items() for name in points_named_in(*packages)}
    assert sorted(derived & by_hand) == []


def test_every_command_that_opens_a_transaction_itself_has_its_pair() -> None:
    found = command_trees()
    assert without_a_pair({name: calls(tree) for name, tree in found.items()}, found) == set()


def test_every_point_has_a_scenario() -> None:
    # tests/archive/test_crashes.py kills the command of the archive at each of its points, tests/backup that of backups.
    held: set[str] = {scenario.point for scenario in SCENARIOS}
    held |= {str(point) for points in (archive_points, backup_points) for point in points.CrashPoint}
    # tests/audit_stream/test_crashes.py kills the audit streamer; tests/approvals/test_crashes.py an API with four eyes and
    # the sweeper of requests; tests/deploy_system/test_crashes.py the listeners and the issuer of a deploy system.
    elsewhere = (
        "audit_stream.", "request_approval.", "approve_request.", "expire_approval.",
        "enrol_deploy_system.", "issue_deploy_certificate.", "accept_deploy_result.",
    )  # fmt: skip
    held |= {str(point) for point in control_points.CrashPoint if point.startswith(elsewhere)}
    assert [str(point) for point in LABELS if point not in held] == []


def test_labels_mean_one_thing() -> None:
    assert len({str(point) for point in LABELS}) == len(LABELS)
    assert all(re.fullmatch(r"[a-z_]+\.[a-z_]+", point) for point in LABELS)
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)


def test_every_point_is_documented() -> None:
    told = set(
        re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / "docs" / "reference" / "crash-points.md").read_text(), re.MULTILINE)
    )
    assert sorted(told ^ {str(point) for point in LABELS}) == []


def test_the_rules_find_a_breach() -> None:
    by_itself = ast.parse("async with context.database.transaction() as tx:\n    reach(CrashPoint.X_BEFORE_COMMIT)")
    assert without_a_pair({"x": calls(by_itself)}, {"x": by_itself}) == {"x"}
    through_the_door = ast.parse("return await transact(context, work)")
    assert commits_of({"x": calls(through_the_door)}) == {"x.before_commit", "x.after_commit"}
    assert list(named_points(ast.parse("reach(CrashPoint.A)\nlog(CrashPoint.B)"))) == ["A"]


def test_nothing_happens_where_nothing_is_installed() -> None:
    reached: list[str] = []
    for module in (control_points, relay_points, agent_points):
        (first, *_) = module.CrashPoint
        module.reach(first)
        crash_points.install(reached.append)
        module.reach(first)
        crash_points.install(None)
        module.reach(first)
    assert len(reached) == 3


def test_a_commit_is_named_after_its_command() -> None:
    reached: list[str] = []

    def begin_release() -> Callable[..., object]:
        return lambda: None

    def put_region() -> Callable[..., object]:
        return lambda: None

    crash_points.install(reached.append)
    try:
        for command in (begin_release, put_region):
            work = command()
            work.__qualname__ = f"{command.__name__}.<locals>.<lambda>"
            control_points.reach_commit(work, "before_commit")
    finally:
        crash_points.install(None)
    assert reached == ["begin_release.before_commit", "other_command.before_commit"]
