"""The modules of the project, each parsed once. The trees are shared: read them only."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


PACKAGES = ("berth", "orchestrator", "worker", "outbox_relay", "node_agent", "migrations")


def modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of every module of these packages."""
    for package in packages or PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), parsed(path)


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text())


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's syntax tree, as `ast.walk` has them."""
    return tuple(ast.walk(parsed(path)))
