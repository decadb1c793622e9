"""docs/reference/cli.md names every command and option, and none that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import typer.main
from typer.core import TyperGroup

from berth.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
OF_THE_SHELL = {"--install-completion", "--show-completion"}


def _commands(group: TyperGroup, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each command with its long options."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _commands(command, f"{path}{name} ")
        else:
            names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            yield f"{path}{name}", {name for name in names if name.startswith("--")}


def _tree() -> dict[str, set[str]]:
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    return dict(_commands(program))


def test_the_page_names_every_command_and_option() -> None:
    everywhere = {"--output", "--state-dir", "--insecure-http", "--help"}
    parts = re.split(r"\*\*`([a-z-]+(?: [a-z-]+){0,2})[^`]*`\*\*", PAGE)
    told: dict[str, str] = {}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        told[name] = told.get(name, "") + text
    tree = _tree()
    assert told.keys() == tree.keys()
    for name, options in tree.items():
        for option in options - everywhere:
            # What follows the next command in one line belongs to both.
            assert f"`{option}" in told[name], f"{name} {option}"


def test_the_page_names_no_option_that_does_not_exist() -> None:
    known = set().union(*_tree().values()) | OF_THE_SHELL | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", PAGE)) <= known
