"""The architecture page names each mechanism of the schema, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg

from tests.schema.catalog import exclusion_constraints, triggers, unique_indexes

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"


def test_the_architecture_page_names_the_guards_of_the_schema(session: psycopg.Connection[Any]) -> None:
    section = PAGE.read_text().split("## Guards in the database")[1].split("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    # The primary keys that PostgreSQL named are no separate mechanism.
    unique = {name for name in unique_indexes(session) if not name.endswith("_pkey")}
    assert named == triggers(session) | exclusion_constraints(session) | unique
