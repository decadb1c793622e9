"""Files that a newcomer expects are there, and the commit hooks run what `make lint` runs."""

from __future__ import annotations

import re

import yaml

from tests.deploy.deployment import ROOT


def test_the_license_is_the_full_text_of_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()


def test_the_project_files_are_there() -> None:
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", ".editorconfig", ".pre-commit-config.yaml"):
        assert (ROOT / name).stat().st_size > 200, name


def test_the_hooks_run_what_lint_runs() -> None:
    rules = (ROOT / "Makefile").read_text()
    parts = re.findall(r" (lint-[a-z]+)", rules.partition("\nlint:")[2].partition("\n\n")[0])
    recipes = [rules.partition(f"\n{part}:")[2].partition("\n\n")[0] for part in parts]
    linted = [re.sub(r"^\w+=\S+ ", "", line.strip()) for recipe in recipes for line in recipe.splitlines()[1:]]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    hooked = [hook["entry"].replace(".venv/bin/", "$(BIN)/") for hook in hooks]
    assert sorted(hooked) == sorted(linted)
    assert len(linted) >= 7


def test_what_is_not_built_does_not_exist() -> None:
    """Each row of the design's section 13 names a path, and none of them exists."""
    section = (ROOT / "docs" / "explanation" / "design.md").read_text().partition("\n## 13. ")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!not built|---)(.+?) \| (.+?) \|", section, re.MULTILINE)
    assert len(rows) >= 8
    for item, named in rows:
        paths = re.findall(r"`([\w./-]+)`", named)
        assert paths, f"{item} names no path"
        for path in paths:
            assert not (ROOT / path).exists(), f"{item}: {path} exists"
            assert not (ROOT / path.removesuffix(".py")).is_dir(), f"{item}: {path} exists as a package"
