"""Mutants of the noun agent."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "the journal keeps the user data of a reported task",
        "agent",
        "node_agent/journal.py",
        "return full or self._login_data_done",
        "return full",
        ("tests/node_agent/test_journal_login_data.py",),
    ),
    Mutant(
        "a start leaves the user data of a reported task",
        "agent",
        "node_agent/journal.py",
        "        if self._login_data_done:",
        "        if False:",
        ("tests/node_agent/test_journal_login_data.py",),
    ),
    Mutant(
        "a task handed out again runs again",
        "agent",
        "node_agent/executor.py",
        "if journaled is not None and journaled.body is not None:",
        "if False:",
        ("tests/node_agent/test_at_most_once.py::test_a_task_handed_out_again_while_it_runs_has_one_effect",),
    ),
    Mutant(
        "an expired task begins when its turn comes",
        "agent",
        "node_agent/executor.py",
        "objection = None if run.began_before else time_objection(run.body, self._clock)",
        "objection = None",
        ("tests/node_agent/test_at_most_once.py",),
    ),
    Mutant(
        "a forgotten completed task runs again",
        "agent",
        "node_agent/journal_state.py",
        "if newest.completed or (newest.task_id",
        "if (newest.task_id",
        ("tests/node_agent/test_journal_memory.py",),
    ),
    Mutant(
        "a running task's fence is used by another",
        "agent",
        "node_agent/journal_state.py",
        "(newest.task_id != body.task_id and other is not None and other.report is None)",
        "False",
        ("tests/node_agent/test_journal_memory.py",),
    ),
    Mutant(
        "compaction drops fences",
        "agent",
        "node_agent/journal_state.py",
        "yield from self.newest.values()",
        "yield from ()",
        ("tests/node_agent/test_journal_memory.py",),
    ),
    Mutant(
        "compaction drops that a task began",
        "agent",
        "node_agent/journal_state.py",
        "            if task.started:",
        "            if False:",
        ("tests/node_agent/test_journal_memory.py",),
    ),
    Mutant(
        "compaction drops reports",
        "agent",
        "node_agent/journal_state.py",
        "            if task.report is not None:",
        "            if False:",
        ("tests/node_agent/test_journal_memory.py",),
    ),
    Mutant(
        "unreported tasks are forgotten",
        "agent",
        "node_agent/journal_state.py",
        ("if task.reported]\n        for old"),
        ("if task.report]\n        for old"),
        ("tests/node_agent/test_journal_memory.py",),
    ),
    Mutant(
        "the newest reports are forgotten",
        "agent",
        "node_agent/journal_state.py",
        "for old in reported[: max(0, len(reported) - REPORTED_KEPT)]:",
        "for old in reported[REPORTED_KEPT:]:",
        ("tests/node_agent/test_journal_memory.py",),
    ),
    Mutant(
        "reports are kept without bound",
        "agent",
        "node_agent/journal_state.py",
        "            del self.tasks[old]",
        "            pass",
        ("tests/node_agent/test_journal_memory.py",),
    ),
]
