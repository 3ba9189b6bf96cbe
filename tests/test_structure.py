"""The order of the layers, and what every module must keep to."""

import ast
from itertools import groupby
from pathlib import Path

import vsrkit

SOURCE = Path(vsrkit.__file__).parent

# From top to bottom. A module belongs to the layer with the longest matching name and may import
# its own layer and the layers above it. Layers of one inner tuple stand side by side: none of them
# may import another.
LAYERS: tuple[str | tuple[str, ...], ...] = (
    "errors",
    "hardware",
    "video",
    "models.anatomy",
    "models.spec",
    "models.weights",
    "models.layers",
    "models",
    "models.zoo",
    "inference",
    "cluster",
    "data",
    "evaluate",
    "upscale",
    "export",
    "vapoursynth",
    "studio",
    "train",
    "research.plots",
    ("research.inspect", "research.theory", "research.reproduce"),
    "support",
    "cli",
)
# The package itself: its version and its public names, imported on first use.
TOP = ("vsrkit", "vsrkit.__main__")

RANK = {
    name: rank
    for rank, names in enumerate(LAYERS)
    for name in ((names,) if isinstance(names, str) else names)
}


def module_name(path):
    parts = ("vsrkit", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def layer_of(module):
    """The layer of a module, None for one that belongs to none."""
    name = module.removeprefix("vsrkit.")
    found = [layer for layer in RANK if name == layer or name.startswith(f"{layer}.")]
    return max(found, key=len, default=None)


def imported_modules(path):
    """The modules of the package that a file imports, at its top or inside its functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("vsrkit."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vsrkit":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module


def imported_names(path):
    """The first names of everything that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def wrong_imports(modules):
    """Lines about imports that go down or sideways, and about modules without a layer."""
    for module, imported in modules:
        here, there = layer_of(module), layer_of(imported)
        if here is None:
            yield f"{module} belongs to no layer"
        elif imported not in TOP and there is None:
            yield f"{module} imports {imported}, which belongs to no layer"
        elif there is not None and here != there and RANK[there] >= RANK[here]:
            yield f"{module} ({here}) imports {imported} ({there})"


def test_every_module_belongs_to_a_layer():
    packages = {"vsrkit.research"}  # holds layers, is none
    assert [m for m in MODULES if layer_of(m) is None and m not in {*TOP, *packages}] == []


def test_every_layer_has_a_module():
    assert set(RANK) == {layer_of(module) for module in MODULES} - {None}


def test_imports_go_up():
    pairs = [
        (module, imported)
        for module, path in MODULES.items()
        if module not in TOP
        for imported in imported_modules(path)
    ]
    assert list(wrong_imports(pairs)) == []


def test_an_import_down_or_sideways_is_found():
    assert list(wrong_imports([("vsrkit.video.read", "vsrkit.models.zoo.table")]))
    assert list(wrong_imports([("vsrkit.models.spec", "vsrkit.models.vsrt")]))
    assert list(wrong_imports([("vsrkit.research.theory.learn", "vsrkit.research.inspect.draw")]))
    assert list(wrong_imports([("vsrkit.utils", "vsrkit.errors")]))
    assert not list(wrong_imports([("vsrkit.cli.upscale", "vsrkit.upscale.job")]))


def test_inspect_knows_no_model():
    known = ("anatomy", "spec", "layers", "zoo")  # a model describes its parts by its anatomy
    found = [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        if module.startswith("vsrkit.research.inspect")
        for imported in imported_modules(path)
        if imported.startswith("vsrkit.models.") and imported.split(".")[2] not in known
    ]
    assert found == []


def test_the_top_level_holds_layers_only():
    files = {path.name for path in SOURCE.iterdir() if path.suffix == ".py"}
    assert files == {"__init__.py", "__main__.py", "errors.py"}


def test_only_the_cli_imports_rich():
    imports = {
        module
        for module, path in MODULES.items()
        if "rich" in imported_names(path) and layer_of(module) != "cli"
    }
    assert imports == set()


def test_inputs_are_opened_in_one_place():
    """Where protocols and demuxers are limited; every other `av.open` writes."""
    calls = [
        call
        for module, path in MODULES.items()
        if module != "vsrkit.video.opening"
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("av.open", "av.container.open")
    ]
    assert calls
    assert all(len(c.args) > 1 and ast.unparse(c.args[1]) == "'w'" for c in calls)


def test_files_stay_readable():
    long = {m: n for m, p in MODULES.items() if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}


def test_tests_are_found_by_the_name_of_their_module():
    tests = Path(__file__).parent
    folders = {
        path.relative_to(tests).parent for path in tests.rglob("test_*.py") if path.parent != tests
    }
    whole = {Path("fuzz"), Path("kills")}  # of the whole program
    assert [f for f, _ in groupby(sorted(folders - whole)) if not (SOURCE / f).is_dir()] == []
