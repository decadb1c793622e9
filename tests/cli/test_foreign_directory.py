"""A local stack deletes only its state directory, never foreign files or another stack's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.cli.known_stack import StackProblem
from berth.local.state import StateDirectory


def test_a_directory_with_other_files_is_never_marked_as_a_stacks(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    state = StateDirectory(tmp_path)
    for act in (state.prepare, state.start_over):
        with pytest.raises(StackProblem, match="not a stack's"):
            act()
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_starting_over_leaves_another_stacks_directory_alone(tmp_path: Path) -> None:
    inner = StateDirectory(tmp_path / "demo")
    inner.prepare()
    outer = StateDirectory(tmp_path)
    outer.prepare()
    (outer.log / "api.log").write_text("old")
    outer.start_over()
    assert [entry.name for entry in tmp_path.iterdir()] == ["demo"]
    assert inner.read("state.json") == {}
    assert (inner.path / "secrets").is_dir()
