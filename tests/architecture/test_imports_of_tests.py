"""Test modules import helpers from support modules, never from another test module or another folder's conftest."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture.source_modules import nodes

ROOT = Path(__file__).parents[2]


def imported(source: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that these nodes of a source file import."""
    for node in source:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def forbidden(path: str, source: Iterable[ast.AST]) -> list[str]:
    """The modules that the file at `path` must not import: test modules, and the conftest of a folder that it is not in."""
    package = path.rpartition("/")[0].replace("/", ".")
    found = []
    for module in imported(source):
        folder, _, name = module.rpartition(".")
        if not module.startswith("tests.") or not (ROOT / f"{module.replace('.', '/')}.py").is_file():
            continue
        if name.startswith("test_") or (name == "conftest" and not f"{package}.".startswith(f"{folder}.")):
            found.append(module)
    return found


def test_no_file_imports_a_test_module_or_the_conftest_of_another_folder() -> None:
    files = (file for file in sorted((ROOT / "tests").rglob("*.py")) if "__pycache__" not in file.parts)
    found = {str(file.relative_to(ROOT)): forbidden(str(file.relative_to(ROOT)), nodes(file)) for file in files}
    assert {path: modules for path, modules in found.items() if modules} == {}


@pytest.mark.parametrize(
    ("statement", "modules"),
    [
        ("from tests.architecture.test_rules import x", ["tests.architecture.test_rules"]),
        ("from tests.architecture import test_rules", ["tests.architecture.test_rules"]),
        ("import tests.architecture.test_rules", ["tests.architecture.test_rules"]),
        ("def f():\n    from tests.whole.conftest import whole", ["tests.whole.conftest"]),
        ("from tests.support.whole_stack import whole", []),
        ("from tests.api.conftest import api", []),
    ],
)
def test_what_is_forbidden_is_found(statement: str, modules: list[str]) -> None:
    assert forbidden("tests/api/test_any.py", ast.walk(ast.parse(statement))) == modules
