"""Rules of tests, read off the syntax tree: a test asserts in its own body, and waits for a condition, never for a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture.measures import STAND_INS
from tests.architecture.source_modules import nodes, parsed

TESTS = Path(__file__).parents[1]
PAUSE = "sleep"
MAY_PAUSE = TESTS / "support" / "waiting.py"
UNKNOWN = {"desk", "lane", "told", "ways"}
"""Words that files and classes of the tests once had, and which mean nothing to a reader who does not know them."""


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


def unknown_words(names: Iterable[str]) -> list[str]:
    """The names of files and classes with a word that is no term of the field."""
    words = {name: re.findall(r"[A-Z]?[a-z]+", name.rpartition("/")[2]) for name in names}
    return sorted(name for name, parts in words.items() if UNKNOWN & {part.lower() for part in parts})


def test_files_and_classes_have_names_of_the_field() -> None:
    files = sorted(TESTS.rglob("*.py"))
    classes = [node.name for path in files for node in nodes(path) if isinstance(node, ast.ClassDef)]
    assert unknown_words([*(str(path.relative_to(TESTS)) for path in files), *classes]) == []
    assert unknown_words(["a/desk.py", "_WebhookDesk", "ToldRight", "test_told_versions.py", "a/test_always.py"]) == [
        "ToldRight",
        "_WebhookDesk",
        "a/desk.py",
        "test_told_versions.py",
    ]


def test_names_of_tests_have_no_stand_ins() -> None:
    names = [node.name for path in TESTS.rglob("*.py") for node in nodes(path) if isinstance(node, ast.FunctionDef)]
    tests = [name for name in names if name.startswith("test_")]
    assert [name for name in tests if any(map(STAND_INS.fullmatch, name.split("_")))] == []


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
