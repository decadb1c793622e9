"""Rules of tests, read off the syntax tree: a test asserts in its own body, and waits for a condition, never for a time."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.architecture.source_modules import parsed

TESTS = Path(__file__).parents[1]
PAUSE = "sleep"
MAY_PAUSE = TESTS / "support" / "waiting.py"


def without_assertion(tree: ast.Module) -> Iterator[int]:
    """Lines of test functions that neither assert nor expect an exception themselves."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or not function.name.startswith("test_"):
            continue
        if not any(
            isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr in ("raises", "warns"))
            for node in ast.walk(function)
        ):
            yield function.lineno


def pauses(tree: ast.Module) -> Iterator[int]:
    """Lines that sleep, or wait for an event that no other code can set."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        unreachable = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call)
        if name == PAUSE or (name == "wait" and unreachable and (call.args or call.keywords)):
            yield call.lineno


@pytest.mark.parametrize("rule", [without_assertion, pauses])
def test_every_file_of_the_tests_keeps_the_rule(rule: Callable[[ast.Module], Iterator[int]]) -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != MAY_PAUSE
        for line in rule(parsed(path))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("rule", "text", "lines"),
    [
        (without_assertion, "def test_a() -> None:\n    check(1)", [1]),
        (without_assertion, "def test_a() -> None:\n    def b() -> None:\n        assert True", []),
        (without_assertion, "def test_a() -> None:\n    with pytest.raises(KeyError):\n        check(1)", []),
        (without_assertion, "def check() -> None:\n    pass", []),
        (pauses, f"time.{PAUSE}(1)", [1]),
        (pauses, f"await asyncio.{PAUSE}(0)", [1]),
        (pauses, f"{PAUSE}(1)", [1]),
        (pauses, "threading.Event().wait(1)", [1]),
        (pauses, "asyncio.Event().wait()", []),
        (pauses, "stopping.wait(1)", []),
    ],
)
def test_each_rule_finds_its_breach(rule: Callable[[ast.Module], Iterator[int]], text: str, lines: list[int]) -> None:
    source = text if text.startswith("def") or "await" not in text else f"async def f():\n    {text}"
    assert [line - (source != text) for line in rule(ast.parse(source))] == lines
