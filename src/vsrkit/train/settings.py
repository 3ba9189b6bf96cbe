"""Base class of settings: dataclasses that pydantic validates, with errors of one line."""

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from pydantic import ConfigDict, ValidationError, ValidatorFunctionWrapHandler, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from vsrkit.errors import VsrkitError


class ConfigError(VsrkitError):
    """A recipe has an unknown key or an invalid value."""


SETTINGS = ConfigDict(
    extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
)


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class Validated:
    """Base class of settings: turns pydantic's errors into a `ConfigError`."""

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_line(cls, values: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(values)
        except ValidationError as error:
            known = [field.name for field in fields(cls)]
            lines = [_explain(cls.__name__, known, each) for each in error.errors()]
            raise ConfigError("; ".join(lines)) from None


# Texts after "must be" by type of pydantic's error; {} are filled from the error's context.
ALLOWED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "greater than {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "less than {lt:g}",
    "too_long": "a list of {max_length}",
    "literal_error": "{expected}",
}


def _explain(config: str, known: list[str], error: ErrorDetails) -> str:
    """Explain the error of one key; config: name of the class."""
    kind, (key, *inner) = error["type"], error["loc"]
    if kind == "unexpected_keyword_argument":
        near = get_close_matches(str(key), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
        return f"unknown key {key!r} of {config}; {hint}"
    if kind == "missing" and not inner:
        return f"{key} of {config} is missing"
    if kind == "missing":
        return f"{key} must have more values, got {list(error['input'])}"
    if key == "teacher_weight" and kind == "greater_than":
        return (
            f"teacher_weight must be greater than 0, got {error['input']!r}; to learn from the "
            'frames of the teacher alone, set teacher_mode = "frames"'
        )
    allowed = ALLOWED[kind].format(**error.get("ctx", {})) if kind in ALLOWED else error["msg"]
    return f"{key} must be {allowed}, got {error['input']!r}"
