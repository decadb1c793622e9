"""Refusals of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from orchestrator.problems import Problem


class ImageInUse(Problem):
    """Something needs the image; `users` counts what does, by kind."""

    status, code, title, business = 409, "image_in_use", "Image in use", True

    @classmethod
    def by(cls, name: str, users: Mapping[str, int]) -> Self:
        """The refusal for these counts; at least one is not zero."""
        named = ", ".join(f"{count} {kind}" for kind, count in users.items() if count)
        return cls(
            f"image {name!r} is needed by {named}; retire it with state=retired, and delete it after these have ended",
            users=dict(users),
        )
