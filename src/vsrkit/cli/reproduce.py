"""`vsrkit reproduce`: the paper's tables and its ablation."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()
reproduce = typer.Typer(help="Measure the paper's tables again.", no_args_is_help=True)
commands.add_typer(reproduce, name="reproduce")


@reproduce.command("reds4")
@reproduce.command("vid4")
@reproduce.command("vimeo90k-t")
def table(
    context: typer.Context,
    data: Annotated[Path, typer.Option("--data", help="The folder that holds the set.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Keeps finished rows; else reproduce-TABLE."),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Only this row, or NAME=FILE; repeatable."),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="How to measure; else the usual way for the set.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the table to this file.")
    ] = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps.")] = "cpu",
) -> None:
    """Measure every method of this table whose weights are at hand, beside what was published."""
    import json

    from vsrkit.cli.console import output_console, progress_bar
    from vsrkit.research.reproduce.measure import reproduce_table
    from vsrkit.research.reproduce.show import as_json, print_table

    name = context.info_name
    with progress_bar() as on_progress:
        found = reproduce_table(
            name,  # type: ignore[arg-type]  # one of the three above
            data,
            output or Path(f"reproduce-{name}"),
            only=models or (),
            protocol=protocol,
            precision=precision,
            device=device,
            on_progress=on_progress,
        )
    print_table(found, output_console())
    if json_file:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(as_json(found), indent=2) + "\n", encoding="utf-8")


@reproduce.command()
def ablation(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of runs, table and curves.")
    ] = Path("reproduce-ablation"),
    data: Annotated[
        Path | None, typer.Option("--data", help="A folder of videos; else the bundled clip.")
    ] = None,
    budget: Annotated[str, typer.Option(help="Time for everything: 90s, 30m, 2h.")] = "30m",
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="vsrt: the paper's shape, small; vsrt-s: ours, small; vsrt-s-trained: from its "
            "shipped weights.",
        ),
    ] = "vsrt",
    variants: Annotated[
        list[str] | None, typer.Option("--variant", help="This beside the full; repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each variant.")] = 1,
    steps: Annotated[int, typer.Option(min=0, help="Of each run, instead of a budget.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Clips in a step.")] = 2,
    crop: Annotated[int, typer.Option(min=16, help="Side of an LR crop.")] = 32,
    frames: Annotated[int, typer.Option(min=0, help="Of a clip of vsrt-s; 0: seven.")] = 0,
    learning_rate: Annotated[float, typer.Option(help="The highest.")] = 1e-3,
    degradation: Annotated[str, typer.Option(help="How LR frames are made.")] = "bi",
    held_out: Annotated[float, typer.Option(help="Share of the clips to score on.")] = 0.2,
    validation: Annotated[
        list[str] | None,
        typer.Option(help="Score on the clips of this name instead of a share; repeatable."),
    ] = None,
    warm_start: Annotated[
        list[str] | None,
        typer.Option("--warm-start", help="FILE or flow=FILE, for all variants; repeatable."),
    ] = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps.")] = "cpu",
    workers: Annotated[int, typer.Option(min=0, help="Processes that prepare batches.")] = 1,
) -> None:
    """Train what the paper's ablations take away, side by side; again to go on."""
    from vsrkit.cli.console import report_to_console
    from vsrkit.research.reproduce.ablation import run_ablation
    from vsrkit.research.reproduce.ablation_report import write_ablation
    from vsrkit.research.reproduce.ablation_settings import settings_from

    with report_to_console() as on_progress:
        settings = settings_from(
            data=data,
            budget=budget,
            model=model,
            variants=variants or [],
            seeds=seeds,
            steps=steps,
            batch_size=batch_size,
            crop=crop,
            frames=frames,
            learning_rate=learning_rate,
            degradation=degradation,
            held_out=held_out,
            validation=validation or [],
            warm_start=warm_start or [],
            precision=precision,
            device=device,
            workers=workers,
        )
        plan = run_ablation(settings, output, on_progress=on_progress)
    files = write_ablation(plan, output)
    typer.echo(files[0].read_text(encoding="utf-8"))
    for file in files:
        typer.echo(file)
