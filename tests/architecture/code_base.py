"""`python -m tests.architecture.code_base`: prints the counts that docs/explanation/code-base.md and mutants.md state."""

from __future__ import annotations

import statistics
from collections import Counter

from tests.architecture import measures
from tests.mutants.catalogue import MUTANTS
from tests.mutants.selection.rule import estimate, selected

LAYERS = frozenset({"database", "edge", "http", "verification"})
"""Folders of `orchestrator` beside the nouns."""


def nouns() -> set[str]:
    """The folders of `orchestrator` that are nouns."""
    parts = [path.relative_to(measures.ROOT / "orchestrator").parts for path in measures.tracked("orchestrator/*.py")]
    return {part[0] for part in parts if len(part) > 1} - LAYERS


def counts() -> dict[str, int]:
    """Each count by the words with which the page names it."""
    files = measures.tracked("orchestrator/*.py")
    lines = [len(path.read_text().splitlines()) for path in files]
    in_folder = Counter(path.parent for path in files if path.name != "__init__.py")
    return {
        "files in `orchestrator/`": len(files),
        "median lines of a file in `orchestrator/`": round(statistics.median(lines)),
        "longest file in `orchestrator/`": max(lines),
        "fullest folder of `orchestrator/`": max(in_folder.values()),
        "SQL functions": len(measures.tracked("migrations/functions/*.sql")),
        "revisions of the schema since the baseline": len(measures.tracked("migrations/versions/*r0*.py")) - 1,
        "mutants in the catalogue": len(MUTANTS),
        "mutants that `make mutants` plants": len(selected(MUTANTS)),
        "minutes of `make mutants` on two idle cores, expected": round(estimate(selected(MUTANTS)) / 60),
    }


if __name__ == "__main__":
    for name, count in counts().items():
        print(f"| {name} | about {count:,} |")  # noqa: T201
