"""The package's layout: who may import whom, what an implementation is, and limits that only shrink.

Everything is read from the sources, so that modules count whose libraries are missing here.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from paths import ROOT

from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS

PACKAGE = ROOT / "segmentation"
TESTS = ROOT / "tests"
STARTERS = {
    *("Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "InterpreterPoolExecutor", "start_new_thread"),
    *("ThreadingHTTPServer", "ThreadingTCPServer", "ThreadingMixIn", "Process", "Pool", "ThreadPool", "Popen", "fork"),
    *("posix_spawn", "ChildProcess", "LinkedProcess"),
}

# A folder imports those in later rows and itself, for annotations too; folders of one row don't import each other. ""
# is the package's own `__init__`, which hands out the public names; "base" are the other modules beside it.
ORDER = (
    ("__main__",),
    ("cli",),
    ("",),
    ("web",),
    ("scale", "clips", "doctor"),
    ("sessions",),
    ("pipeline",),
    ("live", "tracking", "interval", "engines"),
    ("stages",),
    ("flow",),
    ("models", "media", "gpu"),
    ("frames",),
    ("options",),
    ("system",),
    ("base",),
)
RANKS = {folder: rank for rank, row in enumerate(ORDER) for folder in row}

# The only modules of one stage that other stages use, with their users.
SHARED_BY_STAGES = {
    "segmentation.stages.preprocess.opencv": {  # `shrink`
        "segmentation.stages.inference.sample_inputs",
        "segmentation.stages.masks.refinement",
        "segmentation.stages.postprocess.opencv",
    },
    "segmentation.stages.preprocess.resampling": {"segmentation.stages.masks.cuda"},
    "segmentation.stages.decode.pyav": {"segmentation.stages.inference.sample_inputs"},
    "segmentation.stages.decode.timestamps": {"segmentation.stages.encode.segments"},
}

CONTRACTS = {
    "decode": ("segmentation.stages.decode", "Decoder"),
    "preprocess": ("segmentation.stages.preprocess", "Preprocessor"),
    "infer": ("segmentation.stages.inference", "Inference"),
    "postprocess": ("segmentation.stages.postprocess", "Postprocessor"),
    "encode": ("segmentation.stages.encode", "Encoder"),
}

# Imports for annotations that close a circle: a live source's description has its ring, whose decoder takes
# descriptions.
IN_A_CIRCLE = {("segmentation.frames", "segmentation.frames.live_frames")}

# Features that have implementations of a stage with them.
FEATURES = {"decode": ("segmentation.live",), "infer": ("segmentation.engines",)}

MOST_FILES = 20  # in a folder, kernels and data too
MOST_IMPORTS = 25  # of this package's modules by one of them

LONGEST = 60  # lines of a function
LONGER: set[str] = set()  # functions beyond that, outside of pipeline/: to be split, never to be added to
ALIKE = {  # names of several classes, with their number
    "Event": 2,  # CUDA's, and the contract that it fulfils
}
MOST_ANY = 141  # how often the package writes `Any`


@dataclass(frozen=True)
class Import:
    """One import of a module of this package: `kind` is "load" (when the module is loaded), "call" (in a function),
    "types" (under TYPE_CHECKING) or "text" (a string, such as an argument of `python -m`)."""

    source: str
    target: str
    line: int
    kind: str

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}: imports {self.target} ({self.kind})"


@cache
def modules() -> dict[str, ast.Module]:
    """Returns the syntax tree of each module by its dotted name; a package's is that of its `__init__`."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        trees[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


@cache
def imports() -> tuple[Import, ...]:
    """Returns all imports within the package."""
    found = []
    for name, tree in modules().items():
        found += [Import(name, target, line, kind) for target, line, kind in _imports(tree, "load")]
        found += [Import(name, target, line, "text") for target, line in _strings(tree)]
    return tuple(one for one in found if one.target != one.source)


def _imports(node: ast.AST, kind: str) -> Iterator[tuple[str, int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                if alias.name.partition(".")[0] == "segmentation":
                    yield alias.name, child.lineno, kind
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, f"line {child.lineno}: a relative import; the package has absolute ones"
            for alias in child.names:
                if str(child.module).partition(".")[0] == "segmentation":
                    full = f"{child.module}.{alias.name}"
                    yield full if full in modules() else str(child.module), child.lineno, kind
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from _imports(ast.Module(child.body, []), "types")
            yield from _imports(ast.Module(child.orelse, []), kind)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _imports(child, "types" if kind == "types" else "call")
        else:
            yield from _imports(child, kind)


def _strings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yields the modules that strings name, but for docstrings."""
    described = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in described:
            for named in re.findall(r"\bsegmentation(?:\.\w+)+", node.value):
                while named not in modules():  # the end may be a class or a function
                    named = named.rpartition(".")[0]
                yield named, node.lineno


def folder_of(module: str) -> str:
    """Returns the name of a module's place in `ORDER`."""
    parts = module.split(".")[1:]
    if not parts or parts[0] in RANKS:
        return parts[0] if parts else ""
    assert len(parts) == 1, f"{module}: a folder that ORDER lacks"
    return "base"


def test_no_import_goes_upward_or_sideways() -> None:
    wrong = []
    for one in imports():
        source, target = folder_of(one.source), folder_of(one.target)
        if source != target and RANKS[source] >= RANKS[target]:
            wrong.append(str(one))
    assert not wrong, "\n".join(wrong)


def test_each_exception_is_needed() -> None:
    used = {(one.source, one.target) for one in imports()}
    assert not {(user, module) for module, users in SHARED_BY_STAGES.items() for user in users} - used


def test_a_stage_imports_another_in_the_listed_places_alone() -> None:
    wrong = []
    for one in imports():
        source, target = stage_of(one.source), stage_of(one.target)
        if source and target and source != target and one.source not in SHARED_BY_STAGES.get(one.target, ()):
            wrong.append(str(one))
    assert not wrong, "\n".join(wrong)


def stage_of(module: str) -> str | None:
    """Returns the name of the stage's folder in which a module is, None for those elsewhere."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["stages"] and (PACKAGE / Path(*parts[1:3])).is_dir() and parts[2:] else None


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for annotations and those in functions count too. `IN_A_CIRCLE` only shrinks."""
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for one in imports():
        if (one.source, one.target) not in IN_A_CIRCLE:
            graph[one.source].add(one.target)
    _refuse_circles(graph)
    for source, target in IN_A_CIRCLE:
        with pytest.raises(AssertionError):
            _refuse_circles(graph | {source: graph[source] | {target}})


def test_no_modules_load_each_other_in_a_circle() -> None:
    """When a module is loaded, so are the packages around it, unless they are being loaded already."""
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for one in imports():
        if one.kind == "load":
            parts = one.target.split(".")
            around = {".".join(parts[:count]) for count in range(1, len(parts))}
            own = {parent for parent in around if one.source == parent or one.source.startswith(f"{parent}.")}
            graph[one.source] |= {one.target, *(around - own)}
    _refuse_circles(graph)


def _refuse_circles(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        raise AssertionError(" -> ".join(exc.args[1])) from None


def test_each_implementation_fulfils_its_stages_contract() -> None:
    assert IMPLEMENTATIONS.keys() == CONTRACTS.keys()
    for stage, implementations in IMPLEMENTATIONS.items():
        for place in (one.place for one in implementations.values()):
            if not place.startswith("segmentation."):
                continue  # another test has entered one of the tools
            module, _, name = place.partition(":")
            folders = (CONTRACTS[stage][0], *FEATURES.get(stage, ()))
            assert module.startswith(tuple(f"{folder}." for folder in folders)), (
                f"{place}: not in a folder of its stage"
            )
            assert CONTRACTS[stage] in ancestors(module, name), f"{place}: no subclass of {CONTRACTS[stage]}"


def ancestors(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Yields a class and all its base classes within the package, as (module, class)."""
    tree = modules()[module]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield module, name
            for base in node.bases:
                yield from ancestors(module, ast.unparse(base.value if isinstance(base, ast.Subscript) else base))
        if isinstance(node, ast.ImportFrom) and str(node.module) in modules():
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    yield from ancestors(str(node.module), alias.name)


def test_folders_can_be_taken_in() -> None:
    files = Counter(path.parent for path in PACKAGE.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    assert not {folder: count for folder, count in files.items() if count > MOST_FILES}


def test_modules_import_few_others() -> None:
    used: dict[str, set[str]] = {}
    for one in imports():
        used.setdefault(one.source, set()).add(one.target)
    assert not {name: len(of) for name, of in used.items() if len(of) > MOST_IMPORTS}


def test_the_tests_mirror_the_package() -> None:
    code = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    tests = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    assert tests - code == {Path("tools")}
    assert not code - tests


def test_functions_are_short() -> None:
    """A function that has become short leaves the list."""
    long = {}
    for module, tree in modules().items():
        for name, node in _functions(tree, module):
            assert node.end_lineno is not None
            if (lines := node.end_lineno - node.lineno + 1) > LONGEST:
                long[name] = lines
    assert long.keys() == LONGER, long
    assert not [name for name in LONGER if name.startswith("segmentation.pipeline.")]


def _functions(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        name = f"{inside}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else inside
        if isinstance(child, ast.FunctionDef):
            yield name, child
        yield from _functions(child, name)


def test_types_are_known() -> None:
    """`Any` is for libraries without types; the limit is lowered with the count."""
    count = {
        module: sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))
        for module, tree in modules().items()
    }
    assert sum(count.values()) <= MOST_ANY, sorted(count.items(), key=lambda item: -item[1])[:20]


def test_the_page_on_concurrency_names_all_modules_that_start_threads_or_processes() -> None:
    page = (ROOT / "docs" / "internals" / "concurrency.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| [")]
    named = {path for row in rows for path in re.findall(r"\]\(\.\./\.\./(segmentation/[^)]+\.py)\)", row)}
    found = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*.py")
        if any(starts(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == named | {"segmentation/system/child_process.py", "segmentation/system/linked_process.py"}


def starts(node: ast.AST) -> bool:
    """Returns whether code makes a thread, a pool or a process, or a class of such."""
    used = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
    return any(ast.unparse(one).rpartition(".")[2] in STARTERS for one in used)


def test_a_class_name_is_used_once() -> None:
    """A reader who meets a name has one class in mind. `ALIKE` only shrinks."""
    classes = Counter(
        node.name for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert {name: count for name, count in classes.items() if count > 1} == ALIKE
