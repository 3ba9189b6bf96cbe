"""Run every command and every Python block of README.md and docs/ on small inputs.

The blocks of a page run from top to bottom in a folder with the files that the pages name. SHORTER
appends arguments to commands that take long; NOT_RUN lists commands that cannot run in a test, with
the reason. Any other command that is not a `vsrkit` command fails the test.
"""

import re
import shlex
import sys
import types
from pathlib import Path

import pytest
import torch
from tests.clips import write_clip
from tests.paths import ROOT
from tests.train.conftest import moving_picture, write_video

from vsrkit import cli
from vsrkit.models.edvr import EDVR, EDVRConfig
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.zoo import ARCHITECTURES, MODELS, build_model, save_model
from vsrkit.models.zoo.table import Architecture, Entry
from vsrkit.video.images import write_image

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

TINY_RUN = (
    "--set model=tiny.safetensors --set steps=2 --set batch_size=1 --set frames=2 --set crop=16 "
    "--set workers=0 --set precision=float32 --set validation_frames=5"
)
POLISHED_RUN = (
    f"{TINY_RUN} --set teacher= --set warm_start= --set validation=one "
    "--set validation_overlaps=true"
)
ABLATION_VARIANTS = (
    "--variant 'w/o STCSA' --variant 'w/o flow' --variant 'w/o BOFF' --variant 'hop, not carried' "
    "--variant '1 frame'"
)
VALIDATION = (
    "--validation car05_001 --validation hitachi_isee5_001 --validation nyvtg_006 "
    "--validation tpvtg_003 --validation set8_motorbike"
)
TRAINED_ABLATION = (
    "vsrkit reproduce ablation -m vsrt-s-trained --steps 60 --data CLIPS --precision bfloat16 "
    f"--batch-size 3 --crop 48 --learning-rate 2e-4 {VALIDATION} {ABLATION_VARIANTS}"
)
NARROWED_ABLATION = (
    "vsrkit reproduce ablation -m vsrt-s-trained --warm-start runs/narrowed/last.safetensors "
    "--steps 200 --seeds 2 --data CLIPS --precision bfloat16 --batch-size 2 --frames 10 --crop 48 "
    f"--learning-rate 8e-4 {VALIDATION} {ABLATION_VARIANTS}"
)
PUBLISHED_ABLATION = (
    "vsrkit reproduce ablation -m vsrt-reds --data CLIPS --channels 16 --crop 32 --steps 100 "
    f"--batch-size 1 --learning-rate 5e-4 --workers 0 {VALIDATION}"
)
TINY_ABLATION = "--steps 1 --seeds 1 --variant '1 frame' --crop 16 --batch-size 1 --workers 0"
# Command as written in a page -> arguments appended to make it fast.
SHORTER = {
    "vsrkit train recipes/vsrt_s.py --set data=my-videos": TINY_RUN,
    "vsrkit train recipes/vsrt_s.py --set data=my-videos --resume": f"{TINY_RUN} --set steps=3",
    "vsrkit train recipes/tiny_cpu.py --set model=toy": "--set steps=2",
    (
        "vsrkit finetune holiday.mp4 -m vsrt-s-web --degradation crf15-35 -o holiday.safetensors"
    ): "-m tiny.safetensors --steps 1",
    "vsrkit evaluate -m EDVR_M_x4_SR_REDS_official.pth --set vid4 --data Vid4": "--clip city",
    (
        "vsrkit train recipes/vsrt_s.py:taught --set data=CLIPS "
        "--set validation=car05_001,hitachi_isee5_001,nyvtg_006,tpvtg_003,set8_motorbike"
    ): f"{TINY_RUN} --set teacher= --set validation=one --set validation_overlaps=true",
    (
        "vsrkit train recipes/vsrt_s_web.py --set data=CLIPS --set warm_start=vsrt-s "
        "--set validation=car05_001,hitachi_isee5_001,nyvtg_006,tpvtg_003,set8_motorbike"
    ): (
        f"{TINY_RUN} --set model=vsrt-s --set teacher= --set validation=one "
        "--set validation_overlaps=true"
    ),
    (
        "vsrkit train recipes/vsrt_m.py --set data=CLIPS "
        "--set validation=car05_001,hitachi_isee5_001,nyvtg_006,tpvtg_003,set8_motorbike"
    ): f"{TINY_RUN} --set teacher= --set validation=one --set validation_overlaps=true",
    (
        "vsrkit train recipes/vsrt_xs.py --set data=CLIPS "
        "--set validation=car05_001,hitachi_isee5_001,nyvtg_006,tpvtg_003,set8_motorbike"
    ): POLISHED_RUN,
    (
        "vsrkit train recipes/vsrt_s.py:polished --set data=CLIPS "
        "--set warm_start=runs/vsrt-s/best.safetensors,flow=runs/flow-light/best.safetensors "
        "--set validation=car05_001,hitachi_isee5_001,nyvtg_006,tpvtg_003,set8_motorbike"
    ): POLISHED_RUN,
    (
        "vsrkit train recipes/vsrt_m.py:polished --set data=CLIPS "
        "--set warm_start=runs/vsrt-m/best.safetensors,flow=runs/flow-light/best.safetensors "
        "--set validation=car05_001,hitachi_isee5_001,nyvtg_006,tpvtg_003,set8_motorbike"
    ): POLISHED_RUN,
    "vsrkit theory layers -o theory": "--k 2 --seeds 1 --steps 2",
    "vsrkit doctor": "--no-self-test",  # tests/test_doctor.py runs it
    "vsrkit upscale my-videos my-large-videos": "-m bicubic",
    "vsrkit upscale in.mp4 out.mkv --cluster local:2": "-m bicubic",
    "vsrkit upscale frames large --frame-rate 24": "-m bicubic",
    "vsrkit theory gradient --n 8:20 --k 2:6 -o theory": "--n 6,7 --k 2",
    "vsrkit theory learn -o theory": "--n 6 --k 2 --seeds 1 --steps 10 --draws 20",
    "vsrkit reproduce vid4 --data Vid4": "-m bicubic",
    "vsrkit reproduce ablation --budget 30m --data my-videos -o ablation": TINY_ABLATION,
    (
        "vsrkit reproduce ablation --budget 2h --data my-videos -m vsrt-s --seeds 2 -o ablation-s"
    ): TINY_ABLATION,
    (
        "vsrkit train recipes/vsrt_s.py:taught --set data=CLIPS --set run_dir=runs/narrowed "
        "--set steps=1 --set learning_rate=0 --set minimum_learning_rate=0 --set batch_size=1 "
        "--set crop=64 --set frames=9 "
        "--set validation=car05_001,hitachi_isee5_001,nyvtg_006,tpvtg_003,set8_motorbike"
    ): f"{TINY_RUN} --set teacher= --set validation=one --set validation_overlaps=true",
    NARROWED_ABLATION: f"{TINY_ABLATION} --frames 3 --precision float32 -m vsrt-s -o ablation-1",
    TRAINED_ABLATION: f"{TINY_ABLATION} --precision float32 -m vsrt-s -o ablation-2",
}
# Command as written in a page -> command run instead, with a smaller model or other clips.
INSTEAD = {
    # A smaller network of the same name.
    "vsrkit export edvr-m -o exported --precision fp16": (
        "vsrkit export edvr-m.safetensors -o exported --precision fp16"
    ),
    "vsrkit inspect frames/ -m vsrt-reds": "vsrkit inspect frames/ -m tiny-vsrt.safetensors",
    # The clips named in the page are not available here.
    TRAINED_ABLATION: TRAINED_ABLATION.replace(VALIDATION, "--held-out 0.2"),
    NARROWED_ABLATION: NARROWED_ABLATION.replace(VALIDATION, "--held-out 0.2"),
}
# Expected exit codes other than 0.
ENDS_WITH = {
    "vsrkit data check Vid4": 1,  # the small copy lacks frames, which the command reports
}
# Commands that cannot run in a test -> reason.
CLUSTER = "starts processes on other machines; tests/cluster/test_executor.py"
PUBLISHED = "needs REDS or Vimeo-90K; tests/train/test_published_runs.py runs it on small trees"
NOT_RUN = {
    "vsrkit export vsrt-s -o exported --window 5": (
        "takes half a minute; tests/export/test_job.py exports smaller networks"
    ),
    "vsrkit weights calibrate vsrt-s-vivid --data CLIPS --degradations bi,crf25 "
    "--held-out car05_001 --held-out hitachi_isee5_001 --held-out nyvtg_006 --held-out tpvtg_003 "
    "--held-out set8_motorbike -o src/vsrkit/weights/vsrt-s-vivid.int8.json": (
        "needs the clips that the presets are trained on; the page runs it for a small network"
    ),
    PUBLISHED_ABLATION: (
        "takes 15 minutes; tests/research/reproduce/test_published_ablation.py runs a smaller one"
    ),
    "make fuzz N=10000 SEED=long": "takes half an hour; tests/fuzz runs 300 cases",
    "make kills N=1000": "takes an hour; tests/kills runs some",
    "make soak": "takes half an hour; tests/upscale/test_soak.py is shorter",
    "vsrkit data check REDS --set reds-train --quick": PUBLISHED,
    "vsrkit train recipes/vsrt_reds.py --set data_root=REDS --set total_batch_size=32": PUBLISHED,
    **{
        f"torchrun --nproc-per-node 8 -m vsrkit train recipes/{words}": PUBLISHED
        for words in (
            "vsrt_reds.py --set data_root=REDS",
            "vsrt_reds.py --set data_root=REDS --resume",
            "vsrt_reds.py:paper --set data_root=REDS",
            "vsrt_vimeo90k.py --set data_root=vimeo_septuplet",
            "vsrt_vimeo90k.py:paper --set data_root=vimeo_septuplet",
        )
    },
    "vsrkit reproduce ablation -m vsrt-reds --data REDS --processes 8": (
        "needs REDS; tests/research/reproduce/test_published_ablation.py runs a small network"
    ),
    **dict.fromkeys(
        (
            "dask scheduler",
            "dask worker tcp://laptop1:8786 --nthreads 1",
            "ssh laptop2 dask worker tcp://laptop1:8786 --nthreads 1",
            "vsrkit upscale film.mkv --cluster tcp://laptop1:8786",
            "dask worker tcp://laptop1:8786 --nthreads 2 --resources GPU=2",
            "export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=me.pem",
            "export DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=me.pem "
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY=me.key",
            "openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=vsrkit -keyout me.key "
            "-out me.pem",
            "dask scheduler --protocol tls --tls-ca-file me.pem --tls-cert me.pem --tls-key me.key",
            "dask worker tls://laptop1:8786 --nthreads 1 --tls-ca-file me.pem --tls-cert me.pem "
            "--tls-key me.key",
            "vsrkit upscale film.mkv --cluster tls://laptop1:8786",
            "vsrkit evaluate -m bicubic --data my-clips --cluster local:2",
        ),
        CLUSTER,
    ),
    "pip install '.[cluster]'": "would change the environment of the tests",
    "make test": "runs this test",
    "vsrkit demo": "takes long; tests/cli/test_cli.py runs it with a faster model",
    "pip install .": "would change the environment of the tests",
    "vsrkit weights get basicvsr-reds4": "needs a network; tests/models/test_fetch.py",
    "vsrkit weights get animesr-v2": "needs a network; tests/models/test_fetch.py",
    "vsrkit weights get basicvsr-vimeo90k-bi": "needs a network; tests/models/test_fetch.py",
    (
        "torchrun --nproc-per-node 2 -m vsrkit train recipes/vsrt_s.py --set data=my-videos "
        "--set device=cpu"
    ): "starts processes; tests/train/test_processes.py",
}


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """Return (line number, text) of every fenced block of a language."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 2, match[1]) for match in found]


def commands(block: str) -> list[str]:
    """Return the commands after `$ `, with continued lines joined and comments removed."""
    joined = block.replace("\\\n", " ")
    lines = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    return [shlex.join(shlex.split(line, comments=True)) for line in lines]


def steps(page: Path) -> list[tuple[int, str, str]]:
    """Return commands and Python blocks in the order of the page: (line, kind, text)."""
    found = [(line, "python", text) for line, text in blocks(page, "python")]
    for line, block in blocks(page, "console"):
        found += [(line, "command", command) for command in commands(block)]
    return sorted(found, key=lambda step: step[0])


@pytest.fixture(scope="session")
def inputs(tmp_path_factory) -> Path:
    """A folder with all files that the pages name."""
    folder = tmp_path_factory.mktemp("inputs")
    small = moving_picture(7, 64)
    write_clip(folder / "in.mp4", frames=4, width=24, height=24)
    for name, frames, side in (
        ("my-videos/one.mp4", 9, 96),
        ("CLIPS/one.mp4", 9, 96),
        ("holiday.mp4", 12, 192),
    ):
        write_video((folder / name).with_suffix(".mkv"), moving_picture(frames, side))
        (folder / name).with_suffix(".mkv").rename(folder / name)
    for clip in ("calendar", "city", "foliage", "walk"):
        write_frames(folder / "Vid4" / "GT" / clip, small[:5])
    write_frames(folder / "my-clips" / "small", moving_picture(3, 176))
    write_frames(folder / "frames", small)
    for clip in ("one", "two"):
        write_frames(folder / "my-footage" / clip, small)
    torch.manual_seed(0)
    tiny = VSRTSmall(SmallConfig(channels=8, tower_blocks=1, attention_channels=8))
    for name in ("tiny", "my-run/best"):
        save_model(folder / f"{name}.safetensors", tiny)
    blocks = {"extract_blocks": 1, "tower_blocks": 1, "reconstruct_blocks": 1}
    vsrt = VSRT(VSRTConfig(frames=3, depth=2, channels=8, size=16, **blocks))
    save_model(folder / "tiny-vsrt.safetensors", vsrt)
    few = {"channels": 4, "groups": 1, "extract_blocks": 1, "reconstruct_blocks": 1}
    save_model(folder / "edvr-m.safetensors", EDVR(EDVRConfig(**few)))
    edvr = build_model("edvr-m")
    name_of = ARCHITECTURES["edvr"].public_name
    public = {name_of(name): value for name, value in edvr.state_dict().items()}
    torch.save({"params": public}, folder / "EDVR_M_x4_SR_REDS_official.pth")
    (folder / "recipes").symlink_to(ROOT / "recipes")
    return folder


def write_frames(folder: Path, frames) -> None:
    for number, frame in enumerate(frames):
        picture = torch.from_numpy(frame).permute(2, 0, 1) / 255
        write_image(folder / f"{number:08d}.png", picture)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_python_blocks_of_a_page_run(page, inputs, tmp_path, monkeypatch, capsys):
    for path in inputs.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    for line, kind, text in steps(page):
        where = f"{page.relative_to(ROOT)}, line {line}"
        if kind == "python":
            run_python(text, where, monkeypatch)
        elif text not in NOT_RUN:
            run_command(text, where, monkeypatch, capsys)


def run_command(text, where, monkeypatch, capsys):
    arguments = shlex.split(INSTEAD.get(text, text) + " " + SHORTER.get(text, ""))
    assert arguments[0] == "vsrkit", f"{where}: `{text}` is not a vsrkit command and not in NOT_RUN"
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr()
    assert stop.value.code == ENDS_WITH.get(text, 0), (
        f"{where}: `{text}` failed: {said.err}{said.out}"
    )


def run_python(text, where, monkeypatch):
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    exec(compile(text, where, "exec"), module.__dict__)
    if hasattr(module, "Toy"):  # later commands of docs/adding-a-model.md need it in the tables
        config, build = module.ToyConfig, module.Toy
        monkeypatch.setitem(ARCHITECTURES, "toy", Architecture(config=config, build=build))
        entry = Entry(architecture="toy", config=config(), summary="A toy")
        monkeypatch.setitem(MODELS, "toy", entry)


def test_tables_contain_only_commands_of_the_pages():
    written = {text for page in PAGES for _, kind, text in steps(page) if kind == "command"}
    assert {*SHORTER, *INSTEAD, *ENDS_WITH, *NOT_RUN} - written == set()


def test_every_page_is_in_the_navigation_and_every_link_has_a_target():
    """Checks a part of what `make docs` checks, without mkdocs."""
    listed = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(p.relative_to(ROOT / "docs").as_posix() for p in PAGES[1:])
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_source_files_named_in_pages_exist():
    notes = [ROOT / "CONTRIBUTING.md", *(ROOT / "notes").rglob("*.md")]
    folders = [ROOT, ROOT / "src", ROOT / "src" / "vsrkit"]
    for page in [*PAGES, *notes]:
        for path in re.findall(r"(?:[\w-]+/)+\w+\.py\b", page.read_text(encoding="utf-8")):
            assert any((folder / path).exists() for folder in folders), f"{page.name}: {path}"


def test_no_text_is_parsed_as_html():
    """`<w, x>` outside of code is parsed as HTML and does not appear on the page."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"<[a-zA-Z][^>\n]*>?", re.sub(r"`[^`]*`", "", text)) == [], page.name


def test_commands_are_in_console_blocks():
    """A command in another kind of block, or without `$ `, would not be run."""
    for page in PAGES:
        for language in ("sh", "bash", "shell", ""):
            for line, block in blocks(page, language):
                assert not re.search(r"^\s*\$? ?(vsrkit|make|pip) ", block, re.MULTILINE), (
                    f"{page.name}, line {line}: put commands into a console block after `$ `"
                )
        for line, block in blocks(page, "console"):
            assert commands(block), f"{page.name}, line {line}: no command after `$ `"
