"""The native decoder on a stand-in for the driver: frames, their order and times, errors, sessions that go on."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import av
import pytest
from native_nvdec import compiler, stand_in, stand_in_driver
from paths import ROOT
from videos import Synthetic

from segmentation.errors import BackendError, DeviceMemoryError, InputError
from segmentation.media.opening.probe import probe
from segmentation.options.config import Config
from segmentation.stages.decode.chunks import StreamChanges, read
from segmentation.stages.decode.native import build, library
from segmentation.stages.decode.native.samples import SampleReader
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.pyav import PyAVDecoder

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_nvdec import host_native_nvdec

CLOSED = "keyint=32:min-keyint=32:scenecut=0:bframes=2"
Shown = tuple[int, int, list[int]]


@pytest.fixture(autouse=True)
def driver() -> Iterator[Any]:
    """The stand-in, without faults; in the end it has no more sessions than before."""
    made = stand_in_driver()
    before = made.stand_in_alive()
    made.stand_in_faults(-1, 0, 0, -1)
    yield made
    made.stand_in_faults(-1, 0, 0, -1)
    assert made.stand_in_alive() == before


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    return Synthetic(codec="libx264", options={"x264-params": CLOSED.format(32)}, pts=range(150)).write(
        folder / "a.mp4"
    )


def shown(stage: Any) -> list[Shown]:
    """Returns (pts, duration, levels of the planes) of each frame, of which every sample of a plane is the same."""
    found = []
    for batch in stage:
        for row, frame in enumerate(batch.frames):
            planes = [plane[row] for plane in batch.planes]
            assert all(bool((plane == plane[0, 0]).all()) for plane in planes), frame
            found.append((frame.pts, frame.duration, [int(plane[0, 0]) for plane in planes]))
    stage.close()
    return found


def expected(path: Path, **options: Any) -> list[Shown]:
    """Returns what the stand-in should show: FFmpeg's times, and levels by the packets' check sums."""
    info = probe(str(path))
    reader = SampleReader.of(info, stand_in())
    packets = read(info, None) if reader is None else reader.read(Mock(), Mock())
    sums = {packet.pts: (7 + sum(bytes(packet))) % 256 for packet in packets}
    times = [(f.pts, f.duration) for batch in PyAVDecoder(info, "yuv420p", Config(**options)) for f in batch.frames]
    return [(pts, duration, [(sums[pts] + i) % 256 for i in range(3)]) for pts, duration in times]


OPTIONS: list[dict[str, Any]] = [
    {}, {"batch_size": 1}, {"batch_size": 16}, {"batch_size": 200},
    {"start": 2.0}, {"duration": 1.5}, {"max_frames": 33},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_frames_are_all_there_in_order_with_their_times(clip: Path, options: dict[str, Any]) -> None:
    """Chunks of 32 frames fill batches exactly."""
    stage = host_native_nvdec(probe(str(clip)), **options)
    assert shown(stage) == expected(clip, **options)
    assert stage.damaged == 0


CODECS = {
    "libx264": ("mp4", {"x264-params": "keyint=30:open-gop=1:bframes=3"}),
    "libx265": ("mkv", {"x265-params": "log-level=none:open-gop=1:keyint=30"}),
    "libvpx-vp9": ("webm", {"lag-in-frames": "0", "cpu-used": "8"}),
}


@pytest.mark.parametrize("codec", CODECS)
def test_open_groups_and_other_codecs(codec: str, tmp_path: Path) -> None:
    suffix, options = CODECS[codec]
    path = Synthetic(codec=codec, options=options, gop=30, pts=range(100)).write(tmp_path / f"a.{suffix}")
    assert shown(host_native_nvdec(probe(str(path)))) == expected(path)


def test_sessions_that_nobody_closes_are_destroyed(clip: Path, driver: Any) -> None:
    """Each holds memory of the GPU, which other processes lack too."""
    before = driver.stand_in_alive()
    stage = host_native_nvdec(probe(str(clip)))
    assert sum(len(batch) for batch in stage) == 150
    for thread in stage._threads:
        thread.join()
    assert driver.stand_in_alive() > before
    del stage, thread
    gc.collect()
    assert driver.stand_in_alive() == before


def test_sessions_go_from_file_to_file(clip: Path, driver: Any) -> None:
    pool = NvdecSessionPool()
    every = expected(clip)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: shown(host_native_nvdec(probe(str(clip)), pool)), range(9)))
    assert found == [every] * 9
    alive = driver.stand_in_alive()
    assert 0 < alive <= 28  # a parser and a decoder of each
    for _ in range(3):  # ends in the midst leave nothing to the next
        stage = host_native_nvdec(probe(str(clip)), pool)
        next(iter(stage))
        stage.close()
        assert shown(host_native_nvdec(probe(str(clip)), pool, batch_size=5)) == every
    assert driver.stand_in_alive() <= 28
    pool.close()


@pytest.mark.parametrize(
    ("number", "error", "match"),
    [(801, InputError, r"can't decode it .cuvidDecodePicture returned error 801.; use --decode pyav"),
     (2, DeviceMemoryError, "memory is full")],
)  # fmt: skip
def test_errors_of_the_driver_are_said(clip: Path, driver: Any, number: int, error: Any, match: str) -> None:
    pool, before = NvdecSessionPool(), threading.active_count()
    stage = host_native_nvdec(probe(str(clip)), pool)
    driver.stand_in_faults(70, number, 0, -1)
    with pytest.raises(error, match=match):
        list(stage)
    stage.close()
    assert threading.active_count() == before
    driver.stand_in_faults(-1, 0, 0, -1)
    assert shown(host_native_nvdec(probe(str(clip)), pool)) == expected(clip)
    pool.close()


def test_pictures_that_change_their_size_are_refused(clip: Path, driver: Any) -> None:
    stage = host_native_nvdec(probe(str(clip)))
    driver.stand_in_faults(-1, 0, 0, 40)
    with pytest.raises(StreamChanges, match=r"size or depth changes on the way.*use --decode pyav"):
        list(stage)
    stage.close()


def test_where_the_engine_finds_damage_ffmpeg_counts_it(clip: Path, driver: Any, tmp_path: Path) -> None:
    damaged, data = tmp_path / "damaged.mp4", bytearray(clip.read_bytes())
    with av.open(str(clip)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size > 100]
    for packet in packets[20:23]:
        data[packet.pos + 40 : packet.pos + 60] = bytes(20)
    damaged.write_bytes(data)
    info = probe(str(damaged))
    counting = PyAVDecoder(info, "yuv420p", Config())
    frames = sum(map(len, counting))
    found = []
    for every in (0, 10):
        stage = host_native_nvdec(info)
        driver.stand_in_faults(-1, 0, every, -1)
        assert len(shown(stage)) == frames
        found.append(stage.damaged)
    assert found == [0, counting.damaged] and counting.damaged > 0


def test_without_its_library_the_plan_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "BUILT", tmp_path / "absent.so")
    with pytest.raises(BackendError, match=r"not built: install .* with a C\+\+ compiler; for files, use --decode"):
        library.library.__wrapped__()
    (tmp_path / "damaged.so").write_bytes(b"text")
    with pytest.raises(BackendError, match=r"can't be loaded .*; for files, use --decode nvdec"):
        library.load_library(tmp_path / "damaged.so")
    with pytest.raises(RuntimeError, match=r"can't be built by no-such-compiler: No such file"):
        build.build_library(tmp_path / "new.so", "no-such-compiler")


def test_structures_are_laid_out_as_in_the_headers_of_the_codec_sdk(tmp_path: Path) -> None:
    if not Path("/usr/include/ffnvcodec/dynlink_nvcuvid.h").exists():
        pytest.skip("the package libffmpeg-nvenc-dev is not installed")
    fields = {
        "CUVIDEOFORMAT": ("min_num_decode_surfaces", "coded_width", "display_area", "chroma_format"),
        "CUVIDPARSERDISPINFO": ("repeat_first_field", "timestamp"),
        "CUVIDPARSERPARAMS": ("ulMaxDisplayDelay", "pUserData", "pfnDisplayPicture"),
        "CUVIDSOURCEDATAPACKET": ("payload", "timestamp"),
        "CUVIDDECODECREATEINFO": (
            "bitDepthMinus8",
            "ulMaxHeight",
            "display_area",
            "OutputFormat",
            "ulNumOutputSurfaces",
        ),
        "CUVIDPROCPARAMS": ("unpaired_field", "output_stream"),
        "CUVIDGETDECODESTATUS": ("decodeStatus",),
    }
    printed = [f"sizeof({name})" for name in fields]
    fields["CUVIDPICPARAMS"] = ("CurrPicIdx", "field_pic_flag", "bottom_field_flag", "second_field")  # its beginning
    printed += [f"offsetof({name}, {field})" for name, own in fields.items() for field in own]
    printed.append("(size_t)CUVID_PKT_ENDOFPICTURE")
    found = []
    for header in ("ffnvcodec/dynlink_nvcuvid.h", "nvcuvid.h"):
        before = "#include <ffnvcodec/dynlink_cuda.h>\n" if "/" in header else ""
        text = f'{before}#include "{header}"\n#include <cstddef>\n#include <cstdio>\nint main() {{\n'
        (tmp_path / "a.cpp").write_text(text + "".join(f'printf("%zu ", {value});\n' for value in printed) + "}")
        options = [f"-I{Path(library.__file__).parent}", "-o", str(tmp_path / "a")]
        subprocess.run([compiler(), str(tmp_path / "a.cpp"), *options], check=True)
        found.append(subprocess.run([tmp_path / "a"], check=True, capture_output=True).stdout.split())
    assert found[0] == found[1] and len(found[0]) == len(printed), list(zip(printed, *found, strict=True))


@pytest.mark.slow
def test_no_access_is_out_of_bounds() -> None:
    """All of this folder under AddressSanitizer and UndefinedBehaviorSanitizer."""
    found = [
        subprocess.run(
            [compiler(), f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    checked = {"CXXFLAGS": "-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover -g"}
    checked |= {"ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": " ".join(found)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not slow", str(Path(__file__).parent)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | checked, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
