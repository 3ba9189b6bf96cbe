"""The shape of the code: which part may import which."""

import ast
from pathlib import Path

import vsrkit

SOURCE = Path(vsrkit.__file__).parent

# A part may import the parts to the right of it (and what is in none of them, such as errors).
MAY_IMPORT = {
    "cli": {
        *("demo", "inspect", "theory", "reproduce", "train", "evaluate", "data"),
        *("doctor", "plan", "job", "upscale", "windows", "tiles", "models", "video"),
    },
    "doctor": {"selftest", "models"},
    "selftest": {"job", "shots", "evaluate", "data", "video"},
    "plan": {"faults", "sampling", "job", "upscale", "windows", "tiles", "models", "video"},
    # job/batch.py offers previews and reports, which stand on the rest of job.
    "job": {"preview", "report", "shots", "upscale", "windows", "tiles", "models", "video"},
    "preview": {"job", "upscale", "windows", "models", "video"},
    "report": {"shots", "evaluate", "video"},
    "faults": {"sampling", "video"},
    "sampling": {"video"},
    "shots": set(),
    "demo": {"evaluate", "data", "upscale", "windows", "tiles", "models", "video"},
    "inspect": {"evaluate", "data", "shots", "upscale", "windows", "tiles", "models", "video"},
    "reproduce": {"train", "evaluate", "data", "upscale", "models", "plot"},
    "theory": {"plot"},
    "plot": set(),
    "train": {"evaluate", "data", "upscale", "windows", "tiles", "models", "video"},
    "evaluate": {"data", "upscale", "windows", "tiles", "models", "video"},
    "data": {"shots", "video"},
    "upscale": {"windows", "tiles", "models"},
    "windows": {"models"},
    "tiles": {"models"},
    "models": set(),
    "video": set(),
}


def imports(path):
    """The parts of the package that a file imports, at its top or inside its functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "vsrkit":
                names = [f"vsrkit.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("vsrkit."):
                yield name.split(".")[1]


def test_imports_follow_the_data_flow():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for imported in imports(path):
            known = imported in MAY_IMPORT and part in MAY_IMPORT
            if known and imported != part and imported not in MAY_IMPORT[part]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {imported}")
    assert wrong == []


def test_windows_and_tiles_know_no_model():
    for name in ("windows", "tiles"):
        text = (SOURCE / f"{name}.py").read_text(encoding="utf-8")
        assert "vsrkit.models" not in text.replace("vsrkit.models.spec", "")


def test_files_stay_readable():
    long = {p.name: n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}
