"""The modules of the product, parsed."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


PACKAGES = ("berth", "orchestrator", "worker", "outbox_relay", "node_agent", "migrations")


def modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of every module of these packages. The trees are shared: read them only."""
    for package in packages or PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), _parsed(path)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
