"""How a bug gets into a process or a database, and out again."""

from __future__ import annotations

from typing import Any

_planted: list[tuple[object, str, Any]] = []


def replace(target: object, attribute: str, value: object) -> None:
    """Put `value` in the place of an attribute of a module or class until `unplant`."""
    _planted.append((target, attribute, getattr(target, attribute)))
    setattr(target, attribute, value)


def rewrite(module: object, constant: str, old: str, new: str) -> None:
    """Change a text constant. Fails if `old` is not in it: the product has moved on and the bug must follow."""
    text = getattr(module, constant)
    assert old in text, f"{constant} does not hold {old!r} any more"
    replace(module, constant, text.replace(old, new))


def unplant() -> None:
    """Take every bug out of this process."""
    while _planted:
        target, attribute, value = _planted.pop()
        setattr(target, attribute, value)


def rewritten_function(name: str, *changes: tuple[str, str]) -> str:
    """SQL that makes a database function anew with changed text. Fails where a text to change is not there."""
    steps = "".join(
        f"if position($old${old}$old$ in body) = 0 then raise exception '{name} has changed'; end if;"
        f"body := replace(body, $old${old}$old$, $new${new}$new$);"
        for old, new in changes
    )
    return (
        f"do $do$ declare body text := pg_get_functiondef('{name}'::regproc);"
        f" begin {steps} execute body; end $do$;"
    )  # fmt: skip
