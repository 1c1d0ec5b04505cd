"""Tests FFmpeg's NVENC encoders and ours with a stand-in for NVIDIA's library: `support/nvenc/nvenc.c`.

Where there is no GPU, a stand-in for its driver serves too. So no test here says anything about the chip.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import standin
from marks import first
from textures import assert_shows_texture, texture
from videos import pictures, video_info

PTS = [0, 1, 2, 3, 10, 11, 15, *range(20, 50)]
COUNT = 40


def psnr(path: Path) -> float:
    """Returns the luma's PSNR over all pictures of a file of `nvenc_client.picture`."""
    info, errors = video_info((320, 192)), []
    for i, shown in enumerate(pictures(path)):
        luma, expected = shown.planes[0].astype(float), texture(i, info, "yuv444p")[0]
        errors.append(np.square(luma / (1 if shown.pix_fmt.endswith("p") else 4) - expected).mean())
    return float(10 * np.log10(255**2 / np.mean(errors)))


@pytest.mark.parametrize(
    ("codec", "pix_fmt", "decoded"),
    first(
        2,
        [
            ("h264", "nv12", "yuv420p"),
            ("h264", "yuv420p", "yuv420p"),
            ("h264", "yuv444p", "yuv444p"),
            ("hevc", "nv12", "yuv420p"),
            ("hevc", "p010le", "yuv420p10le"),
            ("hevc", "yuv444p", "yuv444p"),
            ("hevc", "yuv444p16le", "yuv444p10le"),
            ("av1", "p010le", "yuv420p10le"),
        ],
    ),
)
def test_ffmpeg_encodes_all_layouts(codec: str, pix_fmt: str, decoded: str, tmp_path: Path) -> None:
    """Every picture comes out once, at its time and with its content; packets are in the order of decoding."""
    path = tmp_path / "out.mkv"
    options = {"bf": "3", "cq": "15", "g": "16", "b_ref_mode": "middle"}
    packets = standin.run("ffmpeg", tmp_path, str(path), f"{codec}_nvenc", pix_fmt, options, COUNT, [])
    pts, dts = [p for p, _, _ in packets], [d for _, d, _ in packets]
    assert sorted(pts) == [512 * i for i in range(COUNT)] and dts == sorted(set(dts))
    assert all(p >= d for p, d in zip(pts, dts, strict=True))
    assert (pts != sorted(pts)) == (codec != "av1")  # B-frames are out of order
    (session,) = standin.sessions(tmp_path)
    assert (session["codec"], session["submitted"], session["compared"]) == (codec, COUNT, COUNT)
    assert (session["b_frames"], session["gop"], session["quality"]) == (3, 16, 15)
    shown = list(pictures(path))
    assert {p.pix_fmt for p in shown} == {decoded} and len(shown) == COUNT
    assert sum(p.frame.key_frame for p in shown) == -(-COUNT // 16)
    assert psnr(path) > 40


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_lossless(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "out.mkv"
    standin.run("ffmpeg", tmp_path, str(path), f"{codec}_nvenc", "yuv444p", {"tune": "lossless"}, 8, [])
    info = video_info((320, 192))
    for i, shown in enumerate(pictures(path)):
        assert all(np.array_equal(a, b) for a, b in zip(shown.planes, texture(i, info, "yuv444p"), strict=True))


def test_a_rate_that_changes_on_the_way(tmp_path: Path) -> None:
    options = {"bf": "0", "rc": "vbr"}
    rates = [4_000_000, 100_000]
    packets = standin.run("ffmpeg", tmp_path, str(tmp_path / "out.mkv"), "h264_nvenc", "nv12", options, COUNT, rates)
    sizes = [size for _, _, size in packets]
    assert sum(sizes[1 : COUNT // 2]) > 3 * sum(sizes[COUNT // 2 :])


@pytest.mark.slow
def test_several_encoders_at_once(tmp_path: Path) -> None:
    """They keep their pictures apart, and a limit of sessions stops the one too many."""
    codecs = ["h264_nvenc", "hevc_nvenc", "h264_nvenc"]
    sizes = standin.run("together", tmp_path, codecs, 20)
    assert [len(part) for part in sizes] == [20] * 3 and sizes[0] == sizes[2] != sizes[1]
    assert "out of memory (10)" in standin.run("together", tmp_path, codecs, 20, FAULT="sessions@2")


@pytest.mark.parametrize(
    ("fault", "codec", "line"),
    [
        (
            "no-encoder",
            "h264",
            "h264_nvenc can't be used: this GPU has no NVENC, as A100, H100, H200 and B200 have none "
            "(OpenEncodeSessionEx failed: unsupported device (2): (no details))",
        ),
        (
            "sessions@0",
            "hevc",
            "hevc_nvenc can't be used: consumer cards take few encoders at once, or the GPU's memory is full "
            "(OpenEncodeSessionEx failed: out of memory (10): (no details))",
        ),
        (
            "initialize",
            "h264",
            "h264_nvenc can't be used: consumer cards take few encoders at once, or the GPU's memory is full "
            "(InitializeEncoder failed: out of memory (10): the GPU's memory is full)",
        ),
        (
            "no-codec",
            "av1",
            "av1_nvenc can't be used: this GPU's NVENC does not make it; av1 needs Ada or newer (Codec not supported)",
        ),
        (
            "preset",
            "h264",
            "h264_nvenc can't be used: this GPU or its driver refuses "
            "(Cannot get the preset configuration: unsupported param (12): the preset is not supported)",
        ),
        ("old-gpu", "h264", "h264_nvenc on cuda:0"),
        ("old-gpu", "hevc", "hevc_nvenc on cuda:0, without B-frames"),
    ],
)
def test_what_a_plan_says(fault: str, codec: str, line: str, tmp_path: Path) -> None:
    assert standin.run("probe", tmp_path, {"codec": codec}, [1920, 1080], FAULT=fault) == line


def test_a_driver_that_is_too_old(tmp_path: Path) -> None:
    said = standin.run("probe", tmp_path, {}, [1920, 1080], FAULT="old-driver")
    assert said.startswith("h264_nvenc can't be used: the NVIDIA driver is too old for this FFmpeg (Driver does not")


@pytest.mark.parametrize(("size", "words"), [([64, 32], "less than the minimum"), ([4098, 2160], "4098 exceeds 4096")])
def test_sizes_that_the_encoder_lacks(size: Sequence[int], words: str, tmp_path: Path) -> None:
    """The plan sees them, so that another encoder takes the video."""
    said = standin.run("probe", tmp_path, {"codec": "h264"}, size)
    assert said.startswith(f"h264_nvenc can't encode {size[0]}x{size[1]} (") and words in said
    assert standin.run("probe", tmp_path, {"codec": "h264"}, [320, 180]) == "h264_nvenc on cuda:0"


@pytest.fixture
def host() -> None:
    """Our encoder takes PyTorch's memory; on machines with a driver, the tests in `test_nvenc.py` run it on the GPU."""
    pytest.importorskip("torch", minversion="2")
    if standin.has_driver():
        pytest.skip("there is a CUDA driver, which does not take the host's memory for its own")


def job(path: Path, pix_fmt: str = "yuv420p", size: tuple[int, int] = (320, 192), **options: Any) -> list[Any]:
    return [str(path), pix_fmt, size, options, PTS]


def test_our_encoder(host: None, tmp_path: Path) -> None:
    """All that the GPU's tests ask of a GPU with NVENC. Surfaces are read late, and overwritten after their use."""
    jobs = [
        job(tmp_path / f"{codec}-{pix_fmt}-{size[0]}-{quality}.mkv", pix_fmt, size, codec=codec, quality=quality)
        for codec, pix_fmt in (
            ("h264", "yuv420p"),
            ("hevc", "yuv420p"),
            ("hevc", "yuv420p10le"),
            ("av1", "yuv420p"),
            ("av1", "yuv420p10le"),
        )
        for size, quality in (((320, 192), None), ((321, 193), 0))
    ]
    assert standin.run("encoder", tmp_path, jobs, 0, POISON="1", DELAY="1") == len(jobs)
    for path, pix_fmt, size, options, pts in jobs:
        exact = options["quality"] == 0 and options["codec"] != "av1"
        assert_shows_texture(Path(path), video_info(size), pix_fmt, pts, 0 if exact else 3)
    served = [session for session in standin.sessions(tmp_path) if session["submitted"]]
    assert len(served) == len(jobs)
    for session in served:
        assert session["submitted"] == session["locked"] == session["compared"] == session["poisoned"] == len(PTS)
        assert (session["mapped"], session["changed"], session["gop"]) == (0, 0, 250)


def test_a_surface_that_is_reused_too_early_shows(host: None, tmp_path: Path) -> None:
    """The other tests would fail if our encoder gave surfaces back before NVENC has read them."""
    path = tmp_path / "out.mkv"
    standin.run("encoder", tmp_path, [job(path)], 1)
    with pytest.raises(AssertionError):
        assert_shows_texture(path, video_info((320, 192)), "yuv420p", PTS, 3)


def test_a_surface_that_changes_before_its_lock_is_refused(host: None, tmp_path: Path) -> None:
    """So late that x265 has the picture already, which the chip need not have."""
    said = standin.run("encoder", tmp_path, [job(tmp_path / "out.mkv", codec="hevc")], 6)
    assert "hevc_nvenc can't encode 320x192 nv12 (" in said
    assert [session["changed"] for session in standin.sessions(tmp_path)] == [0, 1]


def test_parity_with_x264(host: None, tmp_path: Path) -> None:
    """With the quality of kept pixels, frames, times and order are those of x264, and the PSNR is 45 dB."""
    ours, theirs = tmp_path / "nvenc.mp4", tmp_path / "x264.mp4"
    standin.run("encoder", tmp_path, [job(ours, quality="high")], 0, POISON="1")
    standin.run("cpu", tmp_path, [job(theirs, quality="high")])
    a, b = list(pictures(ours)), list(pictures(theirs))
    assert [p.time for p in a] == [p.time for p in b] and len(a) == len(PTS)
    with av.open(str(ours)) as container:
        stamps = [(p.dts, p.pts) for p in container.demux(video=0) if p.dts is not None and p.pts is not None]
    assert [d for d, _ in stamps] == sorted({d for d, _ in stamps}) and all(d <= p for d, p in stamps)
    assert psnr(ours) >= 45 and psnr(theirs) >= 45


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (
            "memory@5",
            "h264_nvenc can't encode 320x192 nv12 (consumer cards take few encoders at once, or the GPU's memory is "
            "full); try --encode x264",
        ),
        (
            "lost@5",
            "the GPU failed (h264_nvenc: Input/output error); see nvidia-smi and the system's log",
        ),
    ],
)
def test_faults_on_the_way(fault: str, line: str, host: None, tmp_path: Path) -> None:
    assert standin.run("encoder", tmp_path, [job(tmp_path / "out.mkv")], 0, FAULT=fault) == line


def test_packets_without_encoding(host: None, tmp_path: Path) -> None:
    """For the measurement of everything but the encoder: a packet for each picture, which players accept."""
    path = tmp_path / "out.mkv"
    standin.run("encoder", tmp_path, [job(path)], 0, EMPTY="1")
    assert len(list(pictures(path))) == len(PTS)
    assert [s["compared"] for s in standin.sessions(tmp_path)] == [0, 0]
