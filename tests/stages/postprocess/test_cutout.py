"""Cut-outs: files whose alpha other programs find, and whose colors are the subject's."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli, report
from videos import Synthetic, packets, pictures, planes, same_packets, times

from segmentation import Config, ConfigError, OutputError, segment
from segmentation.frames import FORMATS
from segmentation.stages.postprocess.opencv import composite

FRAMES = 5


@pytest.fixture(scope="module")
def masks(tmp_path_factory: pytest.TempPathFactory) -> list[NDArray[Any]]:
    """The effect `mask` of the sample's first frames: luma 16 where alpha is 0, 235 where it is 255."""
    path = tmp_path_factory.mktemp("masks") / "mask.mkv"
    segment(SAMPLE, path, effect="mask", codec="ffv1", max_frames=FRAMES)
    return [p.planes[0] for p in pictures(path)]


def decoded(path: Path, codec: str | None = None) -> list[av.VideoFrame]:
    """A file's pictures, of a decoder of choice."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        if codec is None:
            return list(container.decode(stream))
        decoder = av.CodecContext.create(codec, "r")
        packets = [packet for packet in container.demux(stream) if packet.size]
        return [frame for packet in [*packets, None] for frame in decoder.decode(packet)]


def alpha_of(frame: av.VideoFrame) -> NDArray[np.float64]:
    """Its alpha in 0..255."""
    if frame.format.name.startswith("rgb"):
        return frame.to_ndarray(format="rgba")[..., 3].astype(float)
    bits = frame.format.components[3].bits
    return planes(frame)[3] * (255 / ((1 << bits) - 1))


@pytest.mark.parametrize(
    ("name", "decoder", "pix_fmt", "off"),
    [
        ("out.mov", None, "yuva444p12le", 0),
        ("out.webm", "libvpx-vp9", "yuva420p", 10),  # levels that 1 of 1000 pixels is off
        ("out.mkv", None, "yuva420p", 0),
        ("%03d.png", None, "rgba", 0),
    ],
)
def test_alpha_is_the_mask(
    tmp_path: Path, masks: list[NDArray[Any]], name: str, decoder: str | None, pix_fmt: str, off: float
) -> None:
    done = segment(SAMPLE, tmp_path / name, effect="cutout", max_frames=FRAMES)
    assert done.plan["encode"] == "cutout" and done.frames == FRAMES
    files = sorted(tmp_path.iterdir())
    assert len(files) == (FRAMES if "%" in name else 1)
    frames = [frame for file in files for frame in decoded(file, decoder)]
    assert [frame.format.name for frame in frames] == [pix_fmt] * FRAMES
    for frame, mask in zip(frames, masks, strict=True):
        alpha = np.rint(alpha_of(frame)).astype(np.uint8)
        shown = composite(np.full_like(mask, 235), np.full_like(mask, 16), alpha)
        difference = np.abs(shown.astype(int) - mask)
        assert np.percentile(difference, 99.9) <= off and difference.mean() <= off / 20
        assert (alpha == 255).mean() > 0.2 and (alpha == 0).mean() > 0.3


@pytest.mark.parametrize(("name", "audio"), [("out.mov", "aac"), ("out.webm", "libopus"), ("out.mkv", "aac")])
def test_times_and_sound_are_the_inputs(tmp_path: Path, name: str, audio: str) -> None:
    clip = Synthetic(pts=[0, 1, 4, 5, 9, 12], audio=audio, codec="ffv1", color=(1, 1, 1), range=1)
    source = clip.write(tmp_path / "in.mkv")
    segment(source, tmp_path / name, effect="cutout")
    assert times(tmp_path / name) == times(source)
    assert same_packets(packets(tmp_path / name, "audio"), packets(source, "audio"))
    with av.open(str(tmp_path / name)) as container:
        frame = next(container.decode(video=0))
        assert (frame.colorspace, frame.color_range) == (1, 1)


@pytest.mark.parametrize(("pix_fmt", "color"), [("yuv420p", (2, 2, 2)), ("yuv444p10le", (9, 9, 16))])
def test_prores_states_the_color_of_each_picture_in_limited_range(
    tmp_path: Path, pix_fmt: str, color: tuple[int, int, int]
) -> None:
    rgb = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 255, np.uint8), format="rgb24")
    white = rgb.reformat(format=pix_fmt, dst_color_range=2)
    source = Synthetic(frames=[white] * 2, pts=range(2), pix_fmt=pix_fmt, color=color, range=2)
    segment(source.write(tmp_path / "in.mkv"), tmp_path / "out.mov", effect="cutout", invert=True, threshold=0.9)
    found = decoded(tmp_path / "out.mov")[0]
    assert (found.colorspace, found.color_primaries, found.color_trc, found.color_range) == (*color, 1)
    kept = alpha_of(found) > 254.9
    assert kept.mean() > 0.5 and abs(np.median(planes(found)[0][kept]) / 4096 - 235 / 256) < 0.01


@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("size", [(64, 48), (63, 47)])
def test_lossless_cut_outs_keep_the_layout_and_every_bit(tmp_path: Path, size: tuple[int, int], pix_fmt: str) -> None:
    """Everything is kept (the mask of such noise is empty, so it is inverted): all samples are the input's."""
    source = Synthetic(size=size, pts=range(2), pix_fmt=pix_fmt).write(tmp_path / "in.mkv")
    segment(source, tmp_path / "out.mkv", effect="cutout", invert=True, threshold=0.9)
    for given, found in zip(pictures(source), decoded(tmp_path / "out.mkv"), strict=True):
        assert found.format.name == pix_fmt.replace("yuv", "yuva")
        alpha = planes(found)[3]
        solid = alpha == (1 << FORMATS[pix_fmt].bits) - 1
        assert solid.mean() > 0.8
        assert np.array_equal(given.planes[0][solid], planes(found)[0][solid])


@pytest.mark.parametrize(("name", "least"), [("out.mov", 45), ("out.webm", 36)])
def test_lossy_cut_outs_keep_what_their_codec_keeps(tmp_path: Path, name: str, least: float) -> None:
    """PSNR of luma where alpha is full; and what was cut away is black."""
    segment(SAMPLE, tmp_path / name, effect="cutout", max_frames=3)
    found = decoded(tmp_path / name, "libvpx-vp9" if name.endswith("webm") else None)
    for given, frame in zip(pictures(SAMPLE), found, strict=False):
        scale = 1 << (frame.format.components[0].bits - 8)
        luma, alpha = planes(frame)[0] / scale, alpha_of(frame)
        error = np.square(luma - given.planes[0])[alpha > 254.9].mean()
        assert 10 * np.log10(255**2 / error) >= least
        assert np.abs(luma[:, :40][alpha[:, :40] == 0] - 16).mean() < 1


def test_pictures_show_the_subject_upright_before_nothing(tmp_path: Path, masks: list[NDArray[Any]]) -> None:
    segment(SAMPLE, tmp_path / "%03d.png", effect="cutout", max_frames=1)
    source = next(pictures(SAMPLE)).frame.to_ndarray(format="rgb24")
    picture = decoded(tmp_path / "001.png")[0].to_ndarray(format="rgba")
    solid, nothing = picture[..., 3] == 255, picture[..., 3] == 0
    assert solid.mean() > 0.2 and nothing.mean() > 0.3
    assert not picture[nothing].any()
    assert np.abs(picture[solid, :3].astype(int) - source[solid]).mean() < 2


@pytest.mark.parametrize(("pix_fmt", "stored"), [("yuv420p", "rgba"), ("yuv444p10le", "rgba64be")])
@pytest.mark.parametrize("rotation", [90, 270])
def test_turned_videos_become_upright_pictures(tmp_path: Path, rotation: int, pix_fmt: str, stored: str) -> None:
    source = Synthetic(size=(64, 48), pts=[0], pix_fmt=pix_fmt, rotation=rotation, codec="libx264")
    source.options = {"qp": "0"}
    path = source.write(tmp_path / "in.mov")
    segment(path, tmp_path / "%03d.png", effect="cutout", invert=True, threshold=0.9)
    frame = decoded(tmp_path / "001.png")[0]
    assert (frame.width, frame.height, frame.format.name) == (48, 64, stored)
    picture = frame.to_ndarray(format="rgba")
    given = np.rot90(next(pictures(path)).frame.to_ndarray(format="rgb24"), rotation // 90)
    solid = picture[..., 3] == 255
    assert solid.mean() > 0.9
    assert np.abs(picture[solid, :3].astype(int) - given[solid]).mean() < 3


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "00003.png").write_text("mine")
    with pytest.raises(OutputError, match=r"00003\.png: exists already"):
        segment(SAMPLE, tmp_path / "%05d.png", effect="cutout", max_frames=3)
    assert [p.name for p in tmp_path.iterdir()] == ["00003.png"]
    segment(SAMPLE, tmp_path / "%05d.png", effect="cutout", max_frames=3, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00001.png", "00002.png", "00003.png"]


@pytest.mark.parametrize(
    ("target", "effect", "hint"),
    [
        ("out.mp4", "cutout", "can't hold a cutout's alpha; name a .mov"),
        ("out.png", "cutout", "holds one picture"),
        ("none/%05d.png", "cutout", "does not exist"),
    ],
)
def test_what_can_hold_no_cut_out(tmp_path: Path, target: str, effect: str, hint: str) -> None:
    result = cli(SAMPLE, "-o", tmp_path / target, "--effect", effect)
    assert result.returncode == 1 and hint in result.stderr and len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_quality_is_for_webm(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.mov files of cutouts have none"):
        segment(SAMPLE, tmp_path / "out.mov", effect="cutout", quality=20)
    sizes = []
    for quality in (20, 60):
        segment(SAMPLE, tmp_path / "out.webm", effect="cutout", quality=quality, max_frames=5, overwrite=True)
        sizes.append((tmp_path / "out.webm").stat().st_size)
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"codec": "hevc"}, "follows from its output's suffix"),
        ({"preset": "fast"}, "have none"),
        ({"encode": "nvenc"}, "can't encode alpha"),
        ({"verify": True}, "can't check a cutout"),
        ({"quality": 101}, "vp9 takes 0"),
    ],
)
def test_what_does_not_go_with_a_cut_out(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        Config(effect="cutout", **options)


def test_the_encoder_of_cut_outs_encodes_nothing_else() -> None:
    with pytest.raises(ConfigError, match="encodes the effect cutout only"):
        Config(encode="cutout")


def test_by_default_a_cut_out_is_a_mov_with_the_sound(tmp_path: Path) -> None:
    source = Synthetic(audio="aac", codec="libx264").write(tmp_path / "in.mp4")
    done = report(cli(source, "--effect", "cutout", "--json"))
    assert done["output"] == str(tmp_path / "in.segmented.mov")
    with av.open(done["output"]) as container:
        assert [stream.type for stream in container.streams] == ["video", "audio"]
        assert container.streams.video[0].average_rate == Fraction(25)


def test_sound_that_is_left_out_is_said(tmp_path: Path) -> None:
    source = Synthetic(audio="aac", codec="libx264").write(tmp_path / "in.mp4")
    (tmp_path / "out").mkdir()
    result = cli(source, "-o", tmp_path / "out" / "%05d.png", "--effect", "cutout")
    assert result.returncode == 0
    assert "stream 1 (audio aac) is left out: .png files can't hold it" in result.stderr
    assert len(list((tmp_path / "out").iterdir())) == 25
