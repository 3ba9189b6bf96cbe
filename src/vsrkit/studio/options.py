"""The options of a job: a table that is made from the command, values in JSON, and arguments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vsrkit.errors import VsrkitError
from vsrkit.studio.errors import RequestError
from vsrkit.upscale.options import UpscaleOptions

LONGEST_TEXT = 300  # characters
MOST_TEXTS = 50  # in a list

Kind = Literal["integer", "number", "text", "choice", "list"]
Given = dict[str, Any]  # the values in JSON that differ from the defaults, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of the command.

    name: of the field of UpscaleOptions.
    flag: on the command line.
    default: None leaves the choice to vsrkit.
    choices: of the type `choice`, else None.
    """

    group: str
    name: str
    flag: str
    type: Kind
    default: Any
    choices: tuple[str, ...] | None
    help: str


class OptionTable:
    """All options, and the one way to read values of them."""

    def __init__(
        self,
        options: Sequence[Option],
        read: Callable[[Mapping[str, Any]], UpscaleOptions],
    ) -> None:
        """Keep the table.

        options: in the order of the command's help.
        read: makes the options of a job from the values of all options; raises VsrkitError with
            the line that the command prints.
        """
        self._options = {option.name: option for option in options}
        self._read = read

    def as_json(self) -> dict[str, Any]:
        """The options in their groups."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for option in self._options.values():
            value = asdict(option)
            groups.setdefault(value.pop("group"), []).append(value)
        return {"groups": [{"name": name, "options": each} for name, each in groups.items()]}

    def check(self, values: object) -> tuple[Given, UpscaleOptions]:
        """Check values of a request; those that differ from the defaults, and what they mean.

        values: an object; None for the defaults.
        """
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise RequestError(400, "options must be an object")
        given: Given = {}
        for name, value in values.items():
            if name not in self._options:
                raise RequestError(400, f"there is no option {name!r}")
            option = self._options[name]
            _check_type(option, value)
            if value not in (None, option.default, []):
                given[name] = value
        for text in given.get("encoder_options", ()):
            if "/" in text or "\\" in text:  # some options of encoders name files to write
                raise RequestError(400, f"{text!r} names a path, which encoders may not write here")
        defaults = {name: option.default for name, option in self._options.items()}
        try:
            return given, self._read(defaults | given)
        except VsrkitError as error:
            raise RequestError(400, str(error)) from error

    def arguments(self, given: Given) -> list[str]:
        """The arguments of the command for values that were checked."""
        made = []
        for name, option in self._options.items():
            value = given.get(name)
            each = value if isinstance(value, list) else [] if value is None else [value]
            made += [f"{option.flag}={part}" for part in each]
        return made


def _check_type(option: Option, value: object) -> None:
    if value is None:
        return
    if option.type == "integer":
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 40:
            raise RequestError(400, f"{option.flag} is a whole number, not {value!r:.40}")
    elif option.type == "number":
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise RequestError(400, f"{option.flag} is a number, not {value!r:.40}")
    elif option.type == "list":
        if not isinstance(value, list) or len(value) > MOST_TEXTS:
            raise RequestError(400, f"{option.flag} is a list of at most {MOST_TEXTS} texts")
        for text in value:
            _check_text(option, text)
    else:
        _check_text(option, value)
        if option.choices is not None and value not in option.choices:
            raise RequestError(
                400, f"{option.flag} is {', '.join(option.choices)}, not {value!r:.40}"
            )


def _check_text(option: Option, value: object) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or not value.isprintable():
        raise RequestError(400, f"{option.flag} is a line of text, not {value!r:.40}")
