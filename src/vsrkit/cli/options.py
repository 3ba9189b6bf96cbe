"""Options that several commands have in common."""

from typing import Annotated, TypeAlias

import typer

Height: TypeAlias = Annotated[int | None, typer.Option(help="Lines of the result, for any scale.")]
Start: TypeAlias = Annotated[str | None, typer.Option(help="Begin here: seconds or 1:02:03.5.")]
End: TypeAlias = Annotated[str | None, typer.Option(help="End here.")]
Codec: TypeAlias = Annotated[
    str | None, typer.Option("--codec", "-c", help="h264, hevc, av1, vp9, ffv1, prores ...")
]
Crf: TypeAlias = Annotated[int | None, typer.Option(help="Less is better and larger.")]
EncoderOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--encoder-option", "-e", help="key=value for the encoder; repeatable."),
]
PixFmt: TypeAlias = Annotated[str | None, typer.Option(help="yuv420p, yuv420p10le ...")]
Device: TypeAlias = Annotated[
    str, typer.Option("--device", "-d", help="auto, cpu, cuda, cuda:N or mps.")
]
Precision: TypeAlias = Annotated[str, typer.Option(help="auto, float32 or bfloat16.")]
Workers: TypeAlias = Annotated[int, typer.Option(help="Processes that share the work.")]
MaxMemory: TypeAlias = Annotated[
    str | None, typer.Option(help="For example 2G; else a safe share of what is free.")
]
Tile: TypeAlias = Annotated[
    int | None, typer.Option("--tile", "-t", help="Side of tiles; 0 for whole frames.")
]
Chunk: TypeAlias = Annotated[int | None, typer.Option(help="Frames that wait between the stages.")]
Deinterlace: TypeAlias = Annotated[
    str,
    typer.Option(help="auto, always, never, or refuse."),
]
FrameRate: TypeAlias = Annotated[str, typer.Option(help="Of images, which do not know theirs.")]
