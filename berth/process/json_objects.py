"""The types of JSON objects: bodies, events, results and stored documents.

Whatever else has names for its values is a dataclass (`tests/architecture/test_json_objects.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""A JSON object: a body, an event's payload, a result, a stored document."""
JsonMapping = Mapping[str, Any]
"""The same, only read."""
