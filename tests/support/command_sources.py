"""The source of each command, for tests that read code: a command is a public function of a noun's `commands`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEPS = {
    "placement/placing.py": "create_allocations",
    "placement/window_placing.py": "create_allocations",
    "reservations/rival_expiry.py": None,
}
"""Modules beside the commands that open transactions, and the command whose crash points they reach, if it is one."""


def command_modules() -> Iterator[Path]:
    """Every module that holds commands: `<noun>/commands.py` or a module of `<noun>/commands/`."""
    orchestrator = ROOT / "orchestrator"
    yield from sorted(orchestrator.glob("*/commands.py"))
    yield from sorted(path for path in orchestrator.glob("*/commands/*.py") if path.name != "__init__.py")
    yield orchestrator / "operations" / "live_rows.py"


def command_trees() -> dict[str, ast.Module]:
    """Syntax tree of each command by its name: the function, the functions of its module that it uses, and its steps."""
    found: dict[str, ast.Module] = {}
    for path in command_modules():
        functions = {
            node.name: node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for name in functions:
            if not name.startswith("_"):
                assert name not in found, f"two commands are named {name}"
                used = sorted(_reached(name, functions), key=lambda reached: functions[reached].lineno)
                found[name] = ast.Module([functions[each] for each in used], [])
    for step, command in STEPS.items():
        if command is not None:
            found[command].body += ast.parse((ROOT / "orchestrator" / step).read_text()).body
    return found


def _reached(name: str, functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> set[str]:
    """`name` and the private functions of its module that it reaches."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in reached or (current != name and not current.startswith("_")):
            continue
        reached.add(current)
        waiting += [
            node.id for node in ast.walk(functions[current]) if isinstance(node, ast.Name) and node.id in functions
        ]
    return reached
