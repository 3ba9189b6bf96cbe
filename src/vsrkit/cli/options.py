"""The panels of the help, and options that several commands share."""

from typing import Annotated, Any, TypeAlias

import typer

FILES, MODEL, PICTURE, ENCODER = "Input and output", "Model", "Picture", "Encoder"
MEASURE, EXPERIMENT, RESOURCES, RUN = "Measurement", "Experiment", "Resources", "Run control"


def option(panel: str, text: str, *names: str, **limits: Any) -> Any:
    """An option of a command.

    panel: title of the group in which the help lists it.
    text: its help.
    names: of the option; none: that of the parameter.
    limits: `min` and `max` of a number.
    """
    return typer.Option(*names, help=text, rich_help_panel=panel, **limits)


Device: TypeAlias = Annotated[
    str,
    option(
        RESOURCES,
        "Device that runs the model: auto, cpu, cuda, cuda:N or mps.",
        *("--device", "-d"),
    ),
]
