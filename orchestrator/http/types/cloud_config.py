"""Is user data that claims to be a cloud-config one? cloud-init ignores what is no YAML with a warning that no tenant sees.

The text is parsed and nothing is constructed from it: an alias that would unfold to gigabytes is only an event.
"""

from __future__ import annotations

import yaml
from pydantic_core import PydanticCustomError

HEADER = "#cloud-config"
DEPTH_MAX = 64
EVENTS_MAX = 20_000
"""libyaml takes half a second for a thousand open brackets and more: what is deep or long is refused as it is met."""
PROBLEM_LENGTH_MAX = 200


def usable_user_data(value: str) -> str:
    """The value, unless it begins as a cloud-config and is not one YAML mapping. Raises PydanticCustomError.

    Scripts and other kinds of user data (cloudinit.readthedocs.io, "User-data formats") pass as they are.
    """
    if value.startswith(HEADER) and (problem := _problem(value)) is not None:
        raise PydanticCustomError("user_data", "{problem}", {"problem": problem})
    return value


def _problem(text: str) -> str | None:
    """Why the text is no cloud-config, or None. One of comments alone is: it changes nothing."""
    depth = count = documents = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            count += 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.NodeEvent):
                if depth == 0 and not isinstance(event, yaml.MappingStartEvent):
                    return "begins as a cloud-config and is no YAML mapping"
                depth += isinstance(event, yaml.CollectionStartEvent)
            if depth > DEPTH_MAX or count > EVENTS_MAX or documents > 1:
                return f"must be one YAML document, nested {DEPTH_MAX} deep at most, of {EVENTS_MAX} parts at most"
    except yaml.YAMLError as error:
        return f"begins as a cloud-config and is no YAML: {_said(error)}"
    return None


def _said(error: yaml.YAMLError) -> str:
    """The parser's words with the line; nothing of the text, which may hold secrets."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    where = "" if mark is None else f" in line {mark.line + 1}"
    return f"{problem}{where}"[:PROBLEM_LENGTH_MAX]
