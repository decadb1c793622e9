"""Models whose refusal costs no more than their acceptance: surplus members and entries are counted, not listed.

Pydantic builds one error for each, at 2 microseconds an error. JSON text is parsed without these checks: its caller reads no
errors (orchestrator/edge/fast_path.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

SURPLUS_MAX: Final = 20
"""Unknown members of an object that are named one by one."""


@dataclass(frozen=True)
class Counted:
    """Annotates a type whose values `check` counts before they are validated. It raises `PydanticCustomError`."""

    check: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The type's schema behind the check."""
        schema = handler(source)
        checked = core_schema.no_info_before_validator_function(self.check, schema)
        return core_schema.json_or_python_schema(json_schema=schema, python_schema=checked)


def at_most(entries_max: int) -> Counted:
    """Refuse a map of more entries; pydantic compares the length after it has validated them."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > entries_max:
            raise _surplus("has {count} entries; at most {most} are allowed", len(value), entries_max)
        return value

    return Counted(check)


def items_of(*models: type[BaseModel]) -> Counted:
    """Refuse a list with an item of far more members than any of these models, which are no `BoundedModel`, has fields."""
    known = max(len(model.model_fields) for model in models)

    def check(value: Any) -> Any:
        for item in value if isinstance(value, list) else ():
            check_members(item, known)
        return value

    return Counted(check)


class BoundedModel(BaseModel):
    """An object that is refused as a whole if it has far more members than the model has fields."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The model's schema behind a count of the members, under the model's own name in JSON schemas."""
        model: Any = {**handler.resolve_ref_schema(handler(source))}
        if model["type"] == "json-or-python":
            return handler(source)  # the class is complete, and so is its schema
        name = model.pop("ref", None)
        counted = core_schema.no_info_before_validator_function(cls.examine, model)
        return core_schema.json_or_python_schema(json_schema=model, python_schema=counted, ref=name)

    @classmethod
    def examine(cls, value: Any) -> Any:
        """The value as it came, before it is validated. Raises `PydanticCustomError` if it has far too many members."""
        return check_members(value, len(cls.model_fields))


def check_members(value: Any, known: int) -> Any:
    """The value, unless it is an object of far more members than the known ones."""
    if isinstance(value, dict) and len(value) > known + SURPLUS_MAX:
        raise _surplus("has {count} members; at most {most} of them are known", len(value), known)
    return value


def _surplus(message: str, count: int, most: int) -> PydanticCustomError:
    return PydanticCustomError("too_many_members", message, {"count": count, "most": most})
