"""What has names for its values is a dataclass or a TypedDict, unless it is a JSON object, and then its type says so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_modules import ROOT

PACKAGES = ("orchestrator", "worker", "outbox_relay", "node_agent", "berth")
UNNAMED = re.compile(r"\b(dict|Mapping|MutableMapping)\[str, (Any|object)\]")


def crossing(tree: ast.Module) -> Iterator[ast.expr]:
    """The annotations of parameters and results, of members of classes, and of the values of modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            yield from (each.annotation for each in every if each.annotation is not None)
            if node.returns is not None:
                yield node.returns
        if isinstance(node, ast.ClassDef | ast.Module):
            yield from (each.annotation for each in node.body if isinstance(each, ast.AnnAssign))


def unnamed(path: Path) -> list[str]:
    """Where a mapping of names to anything crosses a boundary without a type that says what it is."""
    found = (each for each in crossing(ast.parse(path.read_text())) if UNNAMED.search(ast.unparse(each)))
    return [f"{path}:{each.lineno}: {ast.unparse(each)}" for each in sorted(found, key=lambda each: each.lineno)]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_mapping_of_names_to_anything_crosses_a_function_without_a_name(package: str) -> None:
    assert [each for path in sorted((ROOT / package).rglob("*.py")) for each in unnamed(path)] == []


def test_each_place_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "made: dict[str, Any] = {}\n"
        "class Row:\n"
        "    values: Mapping[str, object]\n"
        "def read(row: dict[str, Any], *, scope: MutableMapping[str, Any]) -> list[dict[str, object]]:\n"
        "    found: dict[str, Any] = {}\n"
    )
    assert [each.split(":")[1] for each in unnamed(module)] == ["1", "3", "4", "4", "4"]
