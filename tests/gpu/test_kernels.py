"""The kernels compile for every GPU and every layout. Compiling needs no GPU; other tests run the kernels."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from marks import first
from paths import ROOT

from segmentation.frames import FORMATS
from segmentation.frames.orientation import UPRIGHT, Orientation

pytest.importorskip("cuda.core", reason="cuda-core is not installed")
from segmentation.clips.sampling import CLIPS
from segmentation.gpu import built_kernels, kernels
from segmentation.gpu.kernels import COMPILER, KernelSource, Program, begin_compiling, compiled, signatures
from segmentation.interval.kernels import PROPAGATION
from segmentation.options.config import Config
from segmentation.pipeline import first_run
from segmentation.stages.frame_kernels import FRAMES
from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, INSTANCES, SEPARABLE, STEM
from segmentation.stages.masks.mask_kernels import MASKS

sys.path.insert(0, str(ROOT / "tools"))  # the tools are programs, not a package
import build_kernels

NAMES = {
    FRAMES: (
        "unpack",
        "preprocess",
        "crop",
        "reduce",
        "divide",
        "pixelate",
        "composite",
        "replace",
        "cut_out",
        "colors",
        "to_rgb",
        "to_surfaces",
    ),
    MASKS: (
        *("resize_mask", "change", "weigh", "average"),
        *("guide", "shrink", "fit_guide", "gather_lines", "draw_edge", "find_sides", "draw_by_color"),
        *("find_nan", "cover", "quantize", "draw_ellipses"),
    ),
    PROPAGATION: ("downsample", "halve", "differ", "search", "match", "weigh_keys", "warp", "blend", "measure_doubt"),
    CLIPS: ("clip_sample",),
    **dict.fromkeys(DEPTHWISE.values(), ("depthwise",)),
    **dict.fromkeys(SEPARABLE.values(), ("separable",)),
    STEM: ("stem",),
    INSTANCES: ("suppress", "draw_boxes", "draw_layers", "draw_prototypes"),
}
IDS = [
    *("frames", "masks", "propagation", "clips"),
    *("depthwise-{}-{}-{}".format(*form) for form in DEPTHWISE),
    *("separable-{}-{}-{}".format(*form) for form in SEPARABLE),
    "stem",
    "instances",
]


# The oldest, one of the middle and the newest; the others if they are asked for.
ARCHS = first(1, ["90", "75", "120", "80", "86", "89", "100"])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", NAMES, ids=IDS)
def test_every_gpu(arch: str, source: KernelSource, folder: Path) -> None:
    code = bytes(compiled(arch, source, FORMATS["yuv420p"], UPRIGHT).code)
    assert all(name.encode() in code for name in NAMES[source])


SHOWN = first(1, [Orientation(1, mirrored=True), *map(Orientation, range(4))])


@pytest.mark.parametrize("shown", SHOWN, ids=str)
@pytest.mark.parametrize("layout", first(3, FORMATS))
@pytest.mark.parametrize("source", [FRAMES, MASKS], ids=["frames", "masks"])  # others read no frames
def test_every_layout(layout: str, shown: Orientation, source: KernelSource, folder: Path) -> None:
    assert len(bytes(compiled("90", source, FORMATS[layout], shown).code)) > 10_000


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("source", NAMES, ids=IDS)
def test_the_arguments_of_every_kernel_can_be_checked(source: KernelSource, layout: str) -> None:
    assert set(signatures(source, FORMATS[layout])) == set(NAMES[source])
    assert all(signature.parameters for signature in signatures(source, FORMATS[layout]).values())


@pytest.fixture
def built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of the machine code that was built into the package."""
    place = folder.parent / "built"
    monkeypatch.setattr(built_kernels, "FOLDER", place)
    built_kernels.built_kernels.cache_clear()
    COMPILER.forget()
    yield place
    built_kernels.built_kernels.cache_clear()
    COMPILER.forget()


def test_what_was_compiled_is_kept(folder: Path, built: Path) -> None:
    compiled("90", CLIPS, FORMATS["yuv420p"], UPRIGHT)
    kept = [p for p in (folder / "kernels").rglob("*") if p.is_file()]
    assert kept
    times = [p.stat().st_mtime_ns for p in kept]
    COMPILER.forget()
    compiled("90", CLIPS, FORMATS["yuv420p"], UPRIGHT)
    assert [p.stat().st_mtime_ns for p in kept] == times
    assert len([p for p in (folder / "kernels").rglob("*") if p.is_file()]) == len(kept)


def test_programs_are_compiled_side_by_side_and_a_first_run_says_so(
    folder: Path, built: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = [Program("90", source, FORMATS["yuv420p"]) for source in (CLIPS, INSTANCES)]
    lines = [f"preparing the GPU for its first run: kernels {number} of 2" for number in (1, 2)]
    for expected in (lines, []):  # the second time they are in the cache
        COMPILER.forget()
        caplog.clear()
        begin_compiling(programs)
        codes = [compiled("90", program.source, program.layout, UPRIGHT) for program in programs]
        assert [record.getMessage() for record in caplog.records] == expected
        assert codes == [COMPILER.begin(program).result() for program in programs]  # none is compiled twice
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_is_there", None)
        begin_compiling(programs)  # the next run looks for none of them


def test_what_was_built_into_the_package_is_not_compiled(
    folder: Path, built: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program("90", CLIPS, FORMATS["yuv420p"])
    built_kernels.write_built_kernels("90", {program.fingerprint(): b"built", "another": b"code"})
    begin_compiling([program])
    assert bytes(compiled("90", CLIPS, program.layout, UPRIGHT).code) == b"built"
    assert not caplog.records
    assert not (folder / "kernels").exists()  # where compiled ones are kept


def test_what_was_built_needs_no_compiler(built: Path) -> None:
    program = Program("90", CLIPS, FORMATS["yuv420p"])
    path = built_kernels.write_built_kernels("90", {program.fingerprint(): b"built"})
    start = f"""
import sys
from pathlib import Path
from segmentation.gpu import built_kernels
built_kernels.FOLDER = Path({str(path.parent)!r})
from segmentation.clips.sampling import CLIPS
from segmentation.frames import FORMATS
from segmentation.gpu.kernels import Program, begin_compiling, compiled
from segmentation.frames.orientation import UPRIGHT
begin_compiling([Program("90", CLIPS, FORMATS["yuv420p"])])
print(compiled("90", CLIPS, FORMATS["yuv420p"], UPRIGHT).code.decode(), "cuda.core" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", start], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "built False\n"


def test_nothing_that_was_built_serves_a_changed_kernel(
    folder: Path, built: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = Program("90", CLIPS, FORMATS["yuv420p"])
    fingerprint = program.fingerprint()
    built_kernels.write_built_kernels("90", {fingerprint: b"built"})
    others = [
        Program("89", CLIPS, program.layout),
        Program("90", CLIPS, FORMATS["yuv420p10le"]),
        Program("90", CLIPS, program.layout, Orientation(1)),
        Program("90", KernelSource(CLIPS.files, (("MORE", 1),)), program.layout),
    ]
    assert len({fingerprint, *(other.fingerprint() for other in others)}) == 5

    for name in (kernels._COMMON, *CLIPS.files):
        (tmp_path / name).parent.mkdir(parents=True)
        text = (kernels._PACKAGE / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(f"{text}// changed\n", encoding="utf-8")
    monkeypatch.setattr(kernels, "_PACKAGE", tmp_path)
    assert program.fingerprint() != fingerprint
    assert b"clip_sample" in bytes(compiled("90", CLIPS, program.layout, UPRIGHT).code)  # NVRTC compiled it


def test_a_damaged_file_of_built_kernels_is_named(built: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = built_kernels.write_built_kernels("90", {"name": bytes(1000)})
    path.write_bytes(b"no archive")
    built_kernels.built_kernels.cache_clear()
    assert built_kernels.built_kernels("90") == {}
    assert [record.getMessage().startswith(f"{path} can't be read (") for record in caplog.records] == [True]


def test_the_package_is_built_with_what_usual_runs_ask_for(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Program] = []
    for name in ("torch-fp16", "torch-instances"):
        plan = SimpleNamespace(infer=SimpleNamespace(name=name), pix_fmt="yuv420p")
        monkeypatch.setattr(kernels, "begin_compiling", asked.extend)
        monkeypatch.setattr(first_run, "arch_of", lambda index: "90")
        for shown in (UPRIGHT, Orientation(1), Orientation(3)):
            info = SimpleNamespace(orientation=shown)
            first_run.begin_kernels(plan, info, Config(interval=4), 0)  # type: ignore[arg-type]
    assert set(build_kernels.programs("90")) >= set(asked)
    later = set(SEPARABLE.values())  # networks of faces ask for these
    assert {program.source for program in asked} == set(NAMES) - {CLIPS} - later
    assert {program.source for program in build_kernels.programs("90")} >= later
