"""Turns the marked blocks of a documentation page into one shell script and compares its output with the page.

A block after `<!-- run -->` is executed with the page's role, after `<!-- run as operator -->` with that role. A block after
`<!-- output -->` lists lines that must appear in this order; `…` matches anything. `<!-- file NAME -->` writes a file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"^<!-- (?P<mark>run|run as tenant|run as operator|output|file (?P<file>[\w.-]+)) -->\n```\w+\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
KEYS = {"tenant": "TENANT_KEY", "operator": "ADMIN_KEY"}


@dataclass(frozen=True)
class Block:
    """One marked block: a command list, expected lines, or a file."""

    mark: str
    text: str
    file: str | None


def blocks(page: Path) -> list[Block]:
    """The marked blocks of a page, in order."""
    return [Block(found["mark"], found["text"], found["file"]) for found in BLOCK.finditer(page.read_text())]


def role(page: Path) -> str | None:
    """The role whose key the page uses: `tenant`, `operator`, or None for a page that sets its own key."""
    found = re.search(r"^Role: (\w+)", page.read_text(), re.MULTILINE)
    return ("tenant" if found[1] == "tenant" else "operator") if found else None


def _script(pages: list[Path]) -> Iterator[str]:
    yield "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    for page in pages:
        if role(page) is None:
            yield 'export BERTH_API_KEY="$ADMIN_KEY"\n'
        for block in blocks(page):
            if block.mark == "output":
                continue
            if block.file:
                yield f"cat > {block.file} <<'END_OF_FILE'\n{block.text}END_OF_FILE\n"
                continue
            acting = block.mark.removeprefix("run as ") if block.mark != "run" else role(page)
            if acting is not None:
                yield f'export BERTH_API_KEY="${KEYS[acting]}"\n'
            yield block.text


def run(pages: list[Path], environment: dict[str, str], directory: Path) -> str:
    """Execute the pages in one shell in `directory`; returns stdout, raises AssertionError on a failing command."""
    directory.mkdir(exist_ok=True)
    environment = {**os.environ, **environment}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    script = "".join(_script(pages))
    done = subprocess.run(["bash", "-c", script], cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
    return done.stdout


def missing_lines(pages: list[Path], output: str) -> list[str]:
    """Expected lines that the output lacks, each searched behind the one before it."""
    missing = []
    position = 0
    for page in pages:
        for block in blocks(page):
            if block.mark != "output":
                continue
            for line in block.text.splitlines():
                words = (re.escape(word).replace("…", ".*") for word in line.split())
                found = re.compile(r"\s+".join(words)).search(output, position)
                if found is None:
                    missing.append(f"{page.name}: {line}")
                else:
                    position = found.end()
    return missing
