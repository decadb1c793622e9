"""Every SQLSTATE that a function raises has a name in `orchestrator.database.sqlstates`, and only there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator.database import sqlstates

ROOT = Path(__file__).parents[2]
NAMES = (ROOT / "orchestrator/database/sqlstates.py", ROOT / "berth/process/passing_states.py")
"""The second has what client and relay share with it."""
RAISED = re.compile(r"errcode\s*=\s*'(\w{5})'")
OWN = re.compile(r"B[A-Z][0-9]{3}")


def raised() -> set[str]:
    """The SQLSTATEs that SQL text in migrations/ raises."""
    return {state for path in (ROOT / "migrations").rglob("*.sql") for state in RAISED.findall(path.read_text())}


def named() -> dict[str, str]:
    """The constants that are one whole SQLSTATE."""
    return {name: value for name, value in vars(sqlstates).items() if isinstance(value, str) and len(value) == 5}


def test_every_raised_sqlstate_is_named_and_every_own_name_is_raised() -> None:
    assert raised() - set(named().values()) == set()
    assert {state for state in named().values() if OWN.fullmatch(state)} - raised() == set()


def test_each_sqlstate_has_one_name() -> None:
    assert len(set(named().values())) == len(named())


def literals(path: Path) -> Iterator[tuple[str, int]]:
    """String constants of a module with their lines; of one whose text has no SQLSTATE, none."""
    text = path.read_text()
    if not any(state in text for state in named().values()) and not OWN.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno


def test_no_other_module_writes_a_sqlstate_as_a_literal() -> None:
    own = set(named().values())
    found = [
        f"{path.relative_to(ROOT)}:{line}: {value}"
        for folder in ("orchestrator", "worker", "berth")
        for path in (ROOT / folder).rglob("*.py")
        if path not in NAMES
        for value, line in literals(path)
        if value in own or OWN.fullmatch(value)
    ]
    assert found == []


def reads_of_errors(text: str) -> Iterator[int]:
    """Lines that read the SQLSTATE or the diagnostics of a driver's error."""
    members = {"sqlstate", "diag", "pgcode"}
    if not any(member in text for member in members):
        return
    for node in ast.walk(ast.parse(text)):
        if (isinstance(node, ast.Attribute) and node.attr in members) or (
            isinstance(node, ast.Constant) and node.value in members
        ):
            yield node.lineno


def test_one_module_decodes_the_errors_of_the_driver() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("orchestrator", "worker", "outbox_relay", "berth")
        for path in (ROOT / folder).rglob("*.py")
        if list(reads_of_errors(path.read_text()))
    }
    assert found == {str(NAMES[0].relative_to(ROOT))}
