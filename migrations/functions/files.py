"""Reads the function files in the order in which PostgreSQL accepts them, and their generation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

FOLDER = Path(__file__).parent
GENERATIONS = "generations.txt"

_CREATE = re.compile(r"^create or replace function (\w+)\(", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_CALL = re.compile(r"\b(\w+)\(")


class FunctionProblem(Exception):
    """The function files, or the functions of the database, cannot be used; the message says what to do."""


@dataclass(frozen=True)
class FunctionFile:
    """One function: its name, its text, and the names that the text calls."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def calls(self) -> frozenset[str]:
        """Names followed by a parenthesis, outside of comments; more than the functions of this project."""
        return frozenset(_CALL.findall(_COMMENT.sub("", self.text)))


def read_functions(folder: Path = FOLDER) -> tuple[FunctionFile, ...]:
    """All functions, each after those it calls: SQL-language bodies are checked when they are created."""
    files = {path.stem: _read(path) for path in sorted(folder.glob("*/*.sql"))}
    if len(files) != len(list(folder.glob("*/*.sql"))):
        raise FunctionProblem("two function files have the same name; a function has one file")
    callees = {name: sorted((file.calls & files.keys()) - {name}) for name, file in files.items()}
    try:
        return tuple(files[name] for name in TopologicalSorter(callees).static_order())
    except CycleError as error:
        raise FunctionProblem(f"functions call each other in a circle: {' -> '.join(error.args[1])}") from error


def _read(path: Path) -> FunctionFile:
    text = path.read_text()
    names = _CREATE.findall(text)
    if names != [path.stem]:
        raise FunctionProblem(f"{path} must contain exactly one `create or replace function {path.stem}(`")
    return FunctionFile(path.stem, text)


def digest_of(files: Iterable[FunctionFile]) -> str:
    """Digest of a whole set of functions, independent of their order."""
    lines = sorted(f"{file.name} {file.sha256}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def generation(folder: Path = FOLDER) -> tuple[int, str]:
    """Number and digest in the last line of `generations.txt`."""
    number, digest = (folder / GENERATIONS).read_text().splitlines()[-1].split()
    return int(number), digest
