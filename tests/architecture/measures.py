"""Measures of the code base that the ratchet bounds: sizes of functions, files and folders, and words (tests/architecture)."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_modules import nodes

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "explanation" / "decisions"
PYTHON_FUNCTION_LINES_MAX = 60
SQL_FUNCTION_LINES_MAX = 80
FILE_LINES_MAX = 400
FOLDER_FILES_MAX = 25
STAND_INS = re.compile(
    r"\b(who|whoever|whom|somebody|someone else|anybody|nobody|everybody|one's|one’s|he|him|his)\b"
    r"|\bof (its|their) own\b"
    r"|\b(told|tells|is at it|are at it|comes to|came to|as may|of which)\b"
    r"|\b(stands|lives)\b|\blooks? (at|after)\b",
    re.IGNORECASE,
)
"""STYLE: pronouns that stand in for an actor, and verbs that stand in for the field's."""
QUOTED = re.compile(r"`[^`]*`|\"[^\"\n]*\"|“[^”]*”")


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository that match, also those not yet committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in sorted(set(listed)) if (ROOT / name).is_file()]


def name_of(path: Path) -> str:
    """The path from the repository's root."""
    return str(path.relative_to(ROOT))


def long_python_functions() -> dict[str, int]:
    """Lines of each Python function beyond the bound, without its docstring, by `path:function`."""
    found: dict[str, int] = {}
    for path in tracked("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = _lines(node)
                if lines > PYTHON_FUNCTION_LINES_MAX:
                    found[f"{name_of(path)}:{node.name}"] = lines
    return found


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    whole = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None and first.end_lineno is not None:
        whole -= first.end_lineno - first.lineno + 1
    return whole


def long_sql_functions() -> dict[str, int]:
    """Lines of each SQL function's file beyond the bound, comments and blank lines too."""
    found: dict[str, int] = {}
    for path in tracked("migrations/functions/**/*.sql"):
        lines = len(path.read_text().splitlines())
        if lines > SQL_FUNCTION_LINES_MAX:
            found[name_of(path)] = lines
    return found


def long_files() -> dict[str, int]:
    """Lines of each Python or SQL file beyond the bound."""
    counted = {name_of(path): len(path.read_text().splitlines()) for path in tracked("*.py", "*.sql")}
    return {name: lines for name, lines in counted.items() if lines > FILE_LINES_MAX}


def full_folders() -> dict[str, int]:
    """Files of each folder beyond the bound; `__init__.py` and `py.typed` are not counted.

    Nor are decisions: they are numbered, and none is removed or joined with another.
    """
    counted = Counter(
        name_of(path.parent)
        for path in tracked("*")
        if path.name not in ("__init__.py", "py.typed") and path.parent not in (ROOT, DECISIONS)
    )
    return {name: files for name, files in counted.items() if files > FOLDER_FILES_MAX}


def stand_ins() -> dict[str, int]:
    """How often each file's docstrings, comments and texts use a word that STYLE replaces, where it does."""
    found: dict[str, int] = {}
    for path in tracked("*.py", "*.sql", "*.md"):
        if name_of(path).startswith("tests/architecture/"):
            continue
        uses = sum(len(STAND_INS.findall(QUOTED.sub("", prose))) for prose in _prose(path))
        if uses:
            found[name_of(path)] = uses
    return found


def _prose(path: Path) -> Iterator[str]:
    text = path.read_text()
    if path.suffix == ".md":
        yield re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    elif path.suffix == ".sql":
        yield from re.findall(r"--(.*)", text)
        yield from re.findall(r"\bis\s+'((?:[^']|'')*)'", text)
    else:
        # A single word may be a value of the API, but not in a test.
        yield from _comments(text)
        yield from _python_texts(path, single_words=path.is_relative_to(ROOT / "tests"))


def _comments(text: str) -> Iterator[str]:
    """The comments of a module, if any has a word to find: to read tokens takes long, and whatever follows a `#` may be one."""
    ends = (line[at:] for line in text.splitlines() for at, sign in enumerate(line) if sign == "#")
    if any(STAND_INS.search(QUOTED.sub("", end)) for end in ends):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def _python_texts(path: Path, single_words: bool) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (single_words or " " in node.value):
            yield node.value
