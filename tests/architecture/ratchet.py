"""The recorded debt, by measure and name. `python -m tests.architecture.ratchet` records what was paid; it never adds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from tests.architecture import measures

RECORD = Path(__file__).with_name("ratchet.json")
MEASURES: dict[str, Callable[[], dict[str, int]]] = {
    "python_function_lines": measures.long_python_functions,
    "sql_function_lines": measures.long_sql_functions,
    "file_lines": measures.long_files,
    "folder_files": measures.full_folders,
    "stand_ins": measures.stand_ins,
}


def recorded() -> dict[str, dict[str, int]]:
    """The debt that is allowed, by measure."""
    debt: dict[str, dict[str, int]] = json.loads(RECORD.read_text())
    return debt


def main() -> int:
    """Lower the record to what is measured; 1 if something is beyond its record."""
    allowed = recorded()
    grown = False
    for measure, measured_by in MEASURES.items():
        measured = measured_by()
        grown |= any(found > allowed[measure].get(name, 0) for name, found in measured.items())
        allowed[measure] = {
            name: min(debt, measured[name]) for name, debt in sorted(allowed[measure].items()) if name in measured
        }
    RECORD.write_text(json.dumps(allowed, indent=1) + "\n")
    return int(grown)


if __name__ == "__main__":
    sys.exit(main())
