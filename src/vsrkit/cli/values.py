"""Parse values of options that are not plain numbers or names."""

from fractions import Fraction

import typer


def one_of(argument: str | None, option: str | None, what: str, name: str) -> str | None:
    """A path that can be given as an argument or as an option; an error if it is given twice."""
    from vsrkit.errors import UsageError

    if argument is not None and option is not None:
        raise UsageError(
            f"the {what} is given twice, {argument} and {name} {option}; leave one out"
        )
    return option if argument is None else argument


def seconds(text: str) -> Fraction:
    """Seconds in `90`, `1:30` or `0:01:30.5`."""
    parts = text.split(":")
    try:
        if len(parts) > 3:
            raise ValueError
        value = Fraction(0)
        for part in parts:
            value = 60 * value + Fraction(part)
    except (ValueError, ZeroDivisionError) as error:
        raise typer.BadParameter(f"{text!r} is not a time; write 90, 1:30 or 0:01:30.5") from error
    if value < 0:
        raise typer.BadParameter(f"{text!r} is negative; times count from the first frame")
    return value


def rate(text: str) -> Fraction:
    """Frames per second in `25`, `23.976` or `24000/1001`."""
    try:
        value = Fraction(text)
        if value <= 0:
            raise ValueError
    except (ValueError, ZeroDivisionError) as error:
        raise typer.BadParameter(f"{text!r} is not a frame rate; write 25 or 24000/1001") from error
    return value


def key_values(pairs: list[str]) -> dict[str, str]:
    """A dictionary of `key=value` texts."""
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not of the form key=value")
    return dict(pair.split("=", 1) for pair in pairs)
