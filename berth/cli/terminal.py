"""The terminal: text of nodes, tenants and servers is shown without what a terminal would act on.

Control characters, escape sequences, line separators and marks of direction are shown as escapes; what Berth itself prints has
none of them but the end of a line.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console


def visible(text: str) -> str:
    """The text with every character that is not printable as an escape, line ends included."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def visible_lines(text: str) -> str:
    """The same; line ends stay."""
    return "\n".join(map(visible, text.split("\n")))


class Terminal(Console):
    """A console that escapes all text; JSON is printed as ASCII, so that it parses to the same text."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, as `Console` does."""
        super().print(*(visible_lines(one) if isinstance(one, str) else one for one in objects), **options)

    def print_json(self, *arguments: Any, **options: Any) -> None:
        """Print JSON, as `Console` does."""
        super().print_json(*arguments, **{"ensure_ascii": True, **options})
