"""`vsrkit evaluate`, `vsrkit compare` and `vsrkit data`."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

INPUT, MODEL, MEASURE, PICTURE = "Input and output", "Model", "Measurement", "Picture"
RESOURCES, RUN = "Resources", "Run control"

commands = typer.Typer()
data = typer.Typer(help="Check test and training data.", no_args_is_help=True)
commands.add_typer(data, name="data")


def _option(panel: str, text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


Models: TypeAlias = Annotated[
    list[str],
    _option(MODEL, "Name of a model, or a checkpoint file. Can be repeated.", "--model", "-m"),
]
Untrained: TypeAlias = Annotated[
    bool,
    _option(MODEL, "Run models without trained weights with random ones.", "--untrained"),
]
Data: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="VSRKIT_DATA",
        help="Folder of the test set; with --set, also a folder that holds several sets.",
        rich_help_panel=INPUT,
    ),
]
SetOption: TypeAlias = Annotated[
    str | None,
    _option(
        INPUT,
        "Which set the folder holds: vid4, reds4, reds-train, vimeo90k-t, vimeo90k-train or "
        "folder. Detected from the files by default.",
        "--set",
    ),
]
Clips: TypeAlias = Annotated[
    list[str] | None,
    _option(INPUT, "Name of a clip to use instead of all. Can be repeated.", "--clip"),
]
ProtocolOption: TypeAlias = Annotated[
    str | None,
    _option(
        MEASURE,
        "How frames are degraded and compared, for example vid4, vid4-bd, vid4-crf25, rgb or y. "
        "By default the usual protocol of the set.",
    ),
]
Device: TypeAlias = Annotated[
    str, _option(RESOURCES, "Device that runs the model: auto, cpu, cuda, cuda:N or mps.")
]


@commands.command()
def evaluate(
    data: Data,
    models: Models,
    set_name: SetOption = None,
    clips: Clips = None,
    json_file: Annotated[
        Path | None, _option(INPUT, "Also write the results to this JSON file.", "--json")
    ] = None,
    save_frames: Annotated[
        Path | None, _option(INPUT, "Write the upscaled frames to this folder.")
    ] = None,
    untrained: Untrained = False,
    ensemble: Annotated[
        bool,
        _option(
            MODEL,
            "Average over flipped, transposed and time-reversed views of a clip.",
            "--ensemble",
        ),
    ] = False,
    views: Annotated[
        int,
        _option(MODEL, "Number of views for --ensemble: 2, 4, 8 or 16. Each costs one full run."),
    ] = 16,
    protocol: ProtocolOption = None,
    metrics: Annotated[
        str,
        _option(
            MEASURE,
            "Metrics, separated by commas: psnr, ssim, ms_ssim, warping_error, warped_flicker, "
            "tof, flicker, consistency, grid, lpips, lpips_vgg, tlpips, dists, niqe, vmaf, or all.",
        ),
    ] = "psnr,ssim",
    precision: Annotated[
        str,
        _option(
            RESOURCES,
            "Number format of the model: float32, bfloat16, or auto for the faster one.",
        ),
    ] = "float32",
    device: Device = "auto",
    cluster: Annotated[
        str | None,
        _option(
            RESOURCES,
            "Dask cluster whose workers measure the clips: tcp://host:8786, a scheduler file, or "
            "local:4. See docs/cluster.md.",
        ),
    ] = None,
) -> None:
    """Measure the quality of models on a test set and print it beside the published results."""
    from contextlib import nullcontext

    from vsrkit.cli.console import output_console, print_results, progress_bar
    from vsrkit.cluster.connect import connect
    from vsrkit.evaluate.benchmark import evaluate_models
    from vsrkit.evaluate.tables import write_json

    with (
        connect(cluster) if cluster else nullcontext() as executor,
        progress_bar() as on_progress,
    ):
        results = evaluate_models(
            models,
            data,
            set_name=set_name,
            protocol=protocol,
            clips=clips or [],
            metrics=metrics.split(","),
            save_frames=save_frames,
            untrained=untrained,
            views=views if ensemble else 1,
            precision=precision,
            device=device,
            on_progress=on_progress,
            executor=executor,
        )
    print_results(results, output_console())
    if json_file:
        write_json(json_file, results)


@commands.command()
def compare(
    data: Data,
    models: Models,
    output: Annotated[
        Path, _option(INPUT, "PNG file for the comparison picture.", "--output", "-o")
    ],
    page: Annotated[
        Path | None,
        _option(INPUT, "Also write a web page with a slider for each clip.", "--html"),
    ] = None,
    set_name: SetOption = None,
    clips: Clips = None,
    untrained: Untrained = False,
    protocol: ProtocolOption = None,
    frame: Annotated[
        int | None,
        _option(PICTURE, "Index of the frame to show, from 0. By default the middle one."),
    ] = None,
    crops: Annotated[
        list[str] | None,
        _option(
            PICTURE,
            "Rectangle to show in HR pixels, X,Y,W,H for all clips or CLIP:X,Y,W,H for one. "
            "By default where the first model differs most from the ground truth. Can be repeated.",
            "--crop",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Show crops of frames as restored by several models side by side, ground truth last."""
    from vsrkit.cli.console import progress_bar
    from vsrkit.evaluate.compare import compare_models, write_comparison

    with progress_bar() as on_progress:
        views = compare_models(
            models,
            data,
            set_name=set_name,
            protocol=protocol,
            clips=clips or [],
            frame=frame,
            crops=crops or [],
            untrained=untrained,
            device=device,
            on_progress=on_progress,
        )
    for path in write_comparison(views, output, page):
        typer.echo(path)


@data.command("check")
def check_data(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a set or of clips.", rich_help_panel=INPUT)
    ],
    set_name: Annotated[
        str | None,
        _option(
            INPUT,
            "Which set to check, as for evaluate. By default every set found in the folder.",
            "--set",
        ),
    ] = None,
    quick: Annotated[
        bool, _option(RUN, "Check names, numbers and sizes, not the files' content.", "--quick")
    ] = False,
) -> None:
    """Report which sets a folder holds, their clips and frames, and every problem in them.

    The exit code is 1 if there is a problem.
    """
    from vsrkit.cli.console import output_console, print_check, progress_bar
    from vsrkit.data.check import check_set
    from vsrkit.data.sets import detect_sets, find_root, set_named

    names = [set_named(set_name)] if set_name else detect_sets(folder)
    checks = []
    for name in names:
        with progress_bar() as on_progress:
            root = find_root(name, folder)
            checks.append(check_set(root, name, quick=quick, on_progress=on_progress))
        print_check(checks[-1], output_console())
    if not all(check.sound for check in checks):
        raise typer.Exit(1)
