"""The documents say what is there: commands that exist, files that exist, settings as they are, a tour that works."""

from __future__ import annotations

import functools
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from typer.core import TyperGroup

from berth.cli.main import app
from berth.local.options import StackOptions
from berth.local.stack import Stack
from tests.deploy.deployment import DEPLOY, ROOT, known_variables

PAGES = [ROOT / "README.md", DEPLOY / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
KINDS = ("tutorials", "how-to", "reference", "explanation")
PACKAGES = ("berth", "orchestrator", "worker", "outbox_relay", "node_agent", "migrations")
NAMES_OF_POSTGRES = {"commit_delay"}
FENCED = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PATH_LIKE = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|sql|md|yaml|json|service|sh)|[\w-]+(?:/[\w-]+)+/?)`")
SEPARATORS = re.compile(r"\$\(|[()|;\n]|&&?")


def _shell_commands() -> Iterator[tuple[str, str]]:
    """Page and simple command, for every `berth` and `make` in a fenced block of shell."""
    for page in PAGES:
        for block in FENCED.finditer(page.read_text()):
            if block["language"].split()[:1] != ["sh"]:
                continue
            text = block["text"].replace("\\\n", " ")
            for line in SEPARATORS.split(re.sub(r"#.*", "", text)):
                # Assignments and redirections are not the command's own; quotes may have been cut in two by $( ).
                simple = re.sub(r"^\s*(?:\w+=\S*\s+)*", "", line).split(" > ")[0].strip()
                if re.match(r"(berth|make)\b", simple):
                    yield str(page.relative_to(ROOT)), simple


COMMANDS = list(_shell_commands())


def test_there_are_commands_to_check() -> None:
    assert len([command for _, command in COMMANDS if command.startswith("berth ")]) >= 12


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page}: {command}" for page, command in COMMANDS])
def test_every_command_exists_with_its_options(page: str, command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {argument for argument in arguments if "=" not in argument} <= targets
        return
    _require_berth_command(arguments)


@functools.cache
def _program() -> Any:
    """`berth` with its commands, drawn up once for all pages."""
    return typer.main.get_command(app)


def _require_berth_command(arguments: list[str]) -> None:
    """Parse as the program would, without running anything or looking at files."""
    found = _program()
    context = typer.Context(found, info_name="berth")
    while isinstance(found, TyperGroup):
        assert arguments, f"{context.command_path} wants a command"
        name, *arguments = arguments
        inner = found.get_command(context, name)
        assert inner is not None, f"there is no command `{context.command_path} {name}`"
        found = inner
        context = typer.Context(found, parent=context, info_name=name)
    values, left, _ = found.make_parser(context).parse_args(list(arguments))
    assert not left, f"too many arguments: {left}"
    missing = [p.name for p in found.params if p.required and values.get(p.name or "") is None]
    assert not missing, f"{context.command_path} wants {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    # Section 13 of the design names what must not exist (test_project_files.py).
    text = re.sub(r"^## 13\. .*?(?=^## )", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for name in PATH_LIKE.findall(text):
        if name.startswith(("/", "provisioning")) or "/" not in name:
            continue
        # A page about one package may name files from there.
        bases = (ROOT, page.parent, *(ROOT / package for package in PACKAGES))
        assert any((base / name).exists() for base in bases), f"{page.name} names {name}, which does not exist"


def test_every_name_of_code_in_a_page_exists() -> None:
    sources = "".join(
        file.read_text()
        for package in (*PACKAGES, "tests")
        for pattern in ("*.py", "*.sql")
        for file in (ROOT / package).rglob(pattern)
    )
    known = set(re.findall(r"\w+", sources))
    for page in (
        ROOT / "docs" / "explanation" / "architecture.md",
        *(ROOT / "docs" / "explanation" / "decisions").glob("*.md"),
    ):
        for name in re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`", page.read_text()):
            assert name in known | NAMES_OF_POSTGRES, f"{page.name} names {name}, which is nowhere in the code"


def test_decisions_are_numbered_and_listed() -> None:
    directory = ROOT / "docs" / "explanation" / "decisions"
    pages = sorted(path.name for path in directory.glob("0*.md"))
    assert [name[:4] for name in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    listed = re.findall(r"\]\((0[\w-]+\.md)\)", (directory / "README.md").read_text())
    assert listed == pages
    for name in pages:
        text = (directory / name).read_text()
        assert text.startswith(f"# {name[:4]} ")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences", "Alternatives"]


def test_the_configuration_page_is_what_the_settings_say() -> None:
    reference = runpy.run_path(str(DEPLOY / "environment_reference.py"))
    written = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    assert written == reference["page"](), "run `python deploy/environment_reference.py`"
    for _, _, settings in reference["processes"]():
        for variable in known_variables(settings):
            assert f"| `{variable}` |" in written


def test_every_page_is_linked_from_the_index_of_its_kind_and_listed_in_the_navigation() -> None:
    readme = (ROOT / "README.md").read_text()
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert "](docs/index.md)" in readme
    for kind in KINDS:
        index = (ROOT / "docs" / kind / "index.md").read_text()
        assert f"]({kind}/index.md)" in (ROOT / "docs" / "index.md").read_text()
        assert f"](docs/{kind}/index.md)" in readme
        for page in (ROOT / "docs" / kind).glob("*.md"):
            assert page.name == "index.md" or f"]({page.name})" in index, (
                f"docs/{kind}/index.md does not link {page.name}"
            )
    listed = re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def test_every_page_lies_in_the_folder_of_its_kind() -> None:
    placed = {str(page.relative_to(ROOT / "docs").parent) for page in (ROOT / "docs").rglob("*.md")}
    assert placed == {
        ".",
        *KINDS,
        "explanation/decisions",
        "how-to/access",
        "how-to/allocations",
        "how-to/backup",
        "how-to/drivers",
        "how-to/fleet",
        "how-to/metal",
        "how-to/servers",
        "reference/access",
        "reference/backup",
        "reference/fleet",
        "reference/metal",
    }


@pytest.mark.full
@pytest.mark.timeout(300)
def test_the_tour_works_when_pasted(tmp_path: Path) -> None:
    blocks = FENCED.finditer((ROOT / "README.md").read_text())
    tour = "\n".join(block["text"] for block in blocks if block["language"] == "sh tour")
    assert "berth alloc create" in tour
    state = tmp_path / "var"
    with Stack(StackOptions(state, agents=1, wished_port=None)):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        environment |= {"BERTH_STATE_DIR": str(state), "TMPDIR": str(tmp_path)}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        script = "set -euo pipefail\n" + tour
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hello from the guest" in done.stdout
    assert "  provisioning.releasing.completed" in done.stdout
    assert "VIOLATED" not in done.stdout


def test_every_test_that_is_named_exists() -> None:
    defined = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"def (test_\w+)", file.read_text()))
    named = set()
    for page in PAGES:
        named |= set(re.findall(r"`(?:[\w/.]+::)?(test_\w+)`", page.read_text()))
    assert len(named) > 20
    assert named <= defined


def test_each_risk_of_the_owasp_list_names_a_test() -> None:
    page = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()
    rows = re.findall(r"^\| API(\d+) .+ \| (.+) \|$", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 11))
    assert [number for number, here in rows if not re.search(r"`test_\w+`", here)] == []


COMES_LATER: dict[str, str] = {}


def test_every_known_failure_names_its_tests_or_a_part_that_does_not_exist() -> None:
    page = ROOT / "docs" / "explanation" / "known-failures.md"
    rows = re.findall(r"^\| (\d+) \|[^|]+\| (.+) \|$", page.read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 31))
    for number, told in rows:
        assert re.search(r"`(tests/[\w/]+\.py|test_\w+)`", told) or "*" in told, f"row {number} names no test"
        for part in re.findall(r"\*([^*]+)\*", told):
            assert part in COMES_LATER, f"row {number} waits for {part}"
            assert not list(ROOT.glob(COMES_LATER[part])), f"row {number} waits for {part}, which exists"


def test_lint_builds_the_site_strictly() -> None:
    """With `--quiet`, MkDocs does not count warnings, and `--strict` passes a broken link."""
    recipe = (ROOT / "Makefile").read_text().partition("\nlint-site:")[2].partition("\n\n")[0]
    built = [line for line in recipe.splitlines() if "mkdocs build" in line]
    assert len(built) == 1
    assert "--strict" in built[0]
    assert "--quiet" not in built[0]
