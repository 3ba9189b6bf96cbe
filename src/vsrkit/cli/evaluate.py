"""`vsrkit evaluate`, `vsrkit compare` and `vsrkit data`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from vsrkit.cli.options import FILES, MEASURE, MODEL, PICTURE, RESOURCES, RUN, Device, option

commands = typer.Typer()
data = typer.Typer(help="Check test and training data.", no_args_is_help=True)
commands.add_typer(data, name="data")


Models: TypeAlias = Annotated[
    list[str],
    option(MODEL, "Name of a model, or a checkpoint file. Can be repeated.", "--model", "-m"),
]
Untrained: TypeAlias = Annotated[
    bool,
    option(MODEL, "Run models that have no trained weights with random ones.", "--untrained"),
]
Data: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="VSRKIT_DATA",
        help="Folder of the test set; with --set, also a folder that holds several sets.",
        rich_help_panel=FILES,
    ),
]
SetOption: TypeAlias = Annotated[
    str | None,
    option(
        FILES,
        "Which set the folder holds: vid4, reds4, reds-train, vimeo90k-t, vimeo90k-train or "
        "folder. Detected from the files by default.",
        "--set",
    ),
]
Clips: TypeAlias = Annotated[
    list[str] | None,
    option(FILES, "Name of a clip to use instead of all. Can be repeated.", "--clip"),
]
ProtocolOption: TypeAlias = Annotated[
    str | None,
    option(
        MEASURE,
        "How frames are degraded and compared, for example vid4, vid4-bd, vid4-crf25, rgb or y. "
        "By default the usual protocol of the set.",
    ),
]


@commands.command()
def evaluate(
    data: Data,
    models: Models,
    set_name: SetOption = None,
    clips: Clips = None,
    json_file: Annotated[
        Path | None, option(FILES, "Also write the results to this JSON file.", "--json")
    ] = None,
    save_frames: Annotated[
        Path | None, option(FILES, "Write the upscaled frames to this folder.")
    ] = None,
    untrained: Untrained = False,
    ensemble: Annotated[
        bool,
        option(
            MODEL,
            "Average over flipped, transposed and time-reversed views of a clip.",
            "--ensemble",
        ),
    ] = False,
    views: Annotated[
        int,
        option(MODEL, "Number of views for --ensemble: 2, 4, 8 or 16. Each costs one full run."),
    ] = 16,
    protocol: ProtocolOption = None,
    metrics: Annotated[
        str,
        option(
            MEASURE,
            "Metrics, separated by commas: psnr, ssim, ms_ssim, warping_error, warped_flicker, "
            "tof, flicker, consistency, grid, lpips, lpips_vgg, tlpips, dists, niqe, vmaf, or all.",
        ),
    ] = "psnr,ssim",
    precision: Annotated[
        str,
        option(
            RESOURCES,
            "Number type of the model: float32, bfloat16, int8, int8-exact, or auto for the faster "
            "of the first two.",
        ),
    ] = "float32",
    device: Device = "auto",
    cluster: Annotated[
        str | None,
        option(
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
        Path, option(FILES, "PNG file for the comparison picture.", "--output", "-o")
    ],
    page: Annotated[
        Path | None,
        option(FILES, "Also write a web page with a slider for each clip.", "--html"),
    ] = None,
    set_name: SetOption = None,
    clips: Clips = None,
    untrained: Untrained = False,
    protocol: ProtocolOption = None,
    frame: Annotated[
        int | None,
        option(PICTURE, "Index of the frame to show, from 0. By default the middle one."),
    ] = None,
    crops: Annotated[
        list[str] | None,
        option(
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
        Path, typer.Argument(help="Folder of a set or of clips.", rich_help_panel=FILES)
    ],
    set_name: Annotated[
        str | None,
        option(
            FILES,
            "Which set to check, as for evaluate. By default every set found in the folder.",
            "--set",
        ),
    ] = None,
    quick: Annotated[
        bool, option(RUN, "Check names, numbers and sizes, not the files' content.", "--quick")
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
