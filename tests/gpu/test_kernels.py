"""The kernels compile for every GPU and every layout. Compiling needs no GPU; other tests run the kernels."""

from pathlib import Path

import pytest
from marks import first

from segmentation.frames import FORMATS
from segmentation.frames.orientation import UPRIGHT, Orientation

pytest.importorskip("cuda.core", reason="cuda-core is not installed")
from segmentation.clips.sampling import CLIPS
from segmentation.gpu.kernels import COMPILER, KernelSource, Program, begin_compiling, compiled, signatures
from segmentation.interval.kernels import PROPAGATION
from segmentation.stages.frame_kernels import FRAMES
from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, INSTANCES
from segmentation.stages.masks.mask_kernels import MASKS

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
        *("guide", "shrink", "fit_guide", "gather_lines", "draw_edge"),
        *("find_nan", "cover", "quantize"),
    ),
    PROPAGATION: ("downsample", "halve", "differ", "search", "match", "weigh_keys", "warp", "blend", "measure_doubt"),
    CLIPS: ("clip_sample",),
    **dict.fromkeys(DEPTHWISE.values(), ("depthwise",)),
    INSTANCES: ("suppress", "draw_boxes", "draw_layers", "draw_prototypes"),
}
IDS = [
    *("frames", "masks", "propagation", "clips"),
    *("depthwise-{}-{}-{}".format(*form) for form in DEPTHWISE),
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


def test_what_was_compiled_is_kept(folder: Path) -> None:
    COMPILER.forget()
    compiled("90", FRAMES, FORMATS["yuv420p"], UPRIGHT)
    kept = [p for p in (folder / "kernels").rglob("*") if p.is_file()]
    assert kept
    times = [p.stat().st_mtime_ns for p in kept]
    COMPILER.forget()
    compiled("90", FRAMES, FORMATS["yuv420p"], UPRIGHT)
    assert [p.stat().st_mtime_ns for p in kept] == times
    assert len([p for p in (folder / "kernels").rglob("*") if p.is_file()]) == len(kept)


def test_programs_are_compiled_side_by_side_and_a_first_run_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture
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
