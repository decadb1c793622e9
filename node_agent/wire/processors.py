"""Lists of processors as Linux and libvirt write them: `0-3,8`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

PROCESSORS_MAX = 8192
_RANGE = re.compile(r"^([0-9]{1,5})(?:-([0-9]{1,5}))?$")


def parse_processors(text: str) -> tuple[int, ...]:
    """The numbers of a list like `0-3,8`, sorted; an empty text is none. Raises ValueError."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        if not part:
            continue
        match = _RANGE.match(part)
        if match is None:
            raise ValueError(f"{part} is no list of processors like 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= PROCESSORS_MAX:
            raise ValueError(f"{part} is no range of processors below {PROCESSORS_MAX}")
        found |= set(range(first, last + 1))
    return tuple(sorted(found))


def listed_processors(numbers: Iterable[int]) -> str:
    """The numbers as such a list."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
