"""Writes the table of problem codes of docs/reference/http-api.md from the classes of refusals; `--check` only compares."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import orchestrator
from deploy.reference_data.problem_advice import ADVICE
from orchestrator.problems import Problem, Unforeseen

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "http-api.md"
BEGIN, END = "<!-- problems: begin -->\n", "<!-- problems: end -->\n"
HEAD = "| status | code | meaning | decided in | members | stored | what to do |\n|---|---|---|---|---|---|---|\n"
_PATH = re.compile(r"orchestrator/[\w/]+\.py")
_SQL = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def problems() -> list[type[Problem]]:
    """The classes of refusals that clients receive, by status and code; `Unforeseen` is `internal`."""
    for found in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    own = {kind for kind in _below(Problem) if "code" in vars(kind)}
    return sorted([*own, Unforeseen], key=lambda kind: (kind.status, kind.code, kind.__name__))


def _below(kind: type[Problem]) -> Iterator[type[Problem]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith("orchestrator."):
            yield below
            yield from _below(below)


def members() -> dict[str, set[str]]:
    """Members beyond the common ones, by class: the keyword arguments of the calls that construct it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "orchestrator").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for node in ast.walk(kind):  # classmethods construct `cls`
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cls":
                    found[kind.name].update(one.arg for one in node.keywords if one.arg)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found[node.func.id].update(one.arg for one in node.keywords if one.arg)
    return found


def _where(code: str) -> str:
    """The places of a code, each in backticks. Raises `ValueError` for a module or SQL function that does not exist."""
    where = ADVICE[code][0]
    names = {path.stem for path in (ROOT / "migrations" / "functions").glob("*/*.sql")}
    if missing := [path for path in _PATH.findall(where) if not (ROOT / path).is_file()]:
        raise ValueError(f"{code}: there is no {missing[0]}")
    bare = _PATH.sub("", where)
    if unknown := [name for name in _SQL.findall(bare) if name not in names]:
        raise ValueError(f"{code}: there is no SQL function {unknown[0]}")
    return re.sub(rf"{_PATH.pattern}|{_SQL.pattern}", lambda match: f"`{match.group(0)}`", where)


def table() -> str:
    """The table in Markdown, a row for each code. Raises `ValueError` if `ADVICE` has codes that no class has."""
    kinds, extra = problems(), members()
    if unused := ADVICE.keys() - {kind.code for kind in kinds}:
        raise ValueError(f"no refusal has the code {min(unused)}")
    return HEAD + "".join(_row(kind, extra[kind.__name__]) for kind in kinds)


def _row(kind: type[Problem], extra: set[str]) -> str:
    meaning = (kind.__doc__ or "").splitlines()[0].rstrip(".")
    shown = [f"`{name}`" for name in sorted(extra)] + (["`Retry-After`"] if kind.retry_after_seconds else [])
    cells = (
        str(kind.status), f"`{kind.code}`", meaning, _where(kind.code), ", ".join(shown) or "-",
        "yes" if kind.business else "no", ADVICE[kind.code][1],
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def page_with_table(page: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> int:
    """Write the page, or with `--check` return 1 if it differs."""
    page = PAGE.read_text()
    wanted = page_with_table(page)
    if "--check" in sys.argv[1:]:
        return int(page != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
