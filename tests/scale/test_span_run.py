"""Pieces are the same however a video is divided among runs, and joined they are one run's output."""

import gc
import threading
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from marks import first
from paths import SHARED
from pieced import OPTIONS, PIECES, Made, files, long_video, made
from videos import packets, same_packets, times

from segmentation import Config, InputError, OutputError, segment
from segmentation.media.opening.probe import probe
from segmentation.pipeline.compositor import Compositor
from segmentation.scale import plan as planning
from segmentation.scale.join import for_pieces, join
from segmentation.scale.piece_file import PieceFile
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.plan import VideoPlan, plan_video
from segmentation.scale.span import Span
from segmentation.scale.span_run import SpanRun
from segmentation.scale.worker import PieceSession
from segmentation.stages.decode import Decoder

Division = Sequence[tuple[int, int]]


class Maker:
    """Makes pieces in this process."""

    def __init__(self, source: Path, folder: Path, **options: Any) -> None:
        given = Config(**{**OPTIONS, **files(folder), **options})
        info = probe(str(source))
        config = for_pieces(given, info, folder / "out.mp4")
        assert config is not None
        self.plan: VideoPlan = plan_video(info, folder / "out.mp4", config, recurrent=False)
        self.pieces = PieceFolder.beside(folder / "out.mp4")
        self.pieces.begin(self.plan)
        self.session = PieceSession(config)
        self.folder = folder

    def make(self, begin: int, end: int, *, shorten: int | None = None) -> list[int]:
        """Makes a span, and returns its pieces. After the first one the span ends at `shorten`."""
        done: list[int] = []
        self.begun: list[int] = []

        def completed(number: int) -> None:
            assert number in self.begun
            done.append(number)
            if shorten is not None:
                span.end = shorten

        span = Span(self.plan, begin, end, completed, self.begun.append)
        self.session.make(span, self.pieces, {}, stop=threading.Event())
        return done

    def join(self) -> Made:
        """Joins all pieces."""
        with self.session:
            paths = [self.pieces.file(number) for number in range(len(self.plan.pieces))]
            report = join(self.plan, paths, self.folder / "out.mp4", overwrite=True)
        assert report.frames == self.plan.frames or not self.plan.frames
        self.pieces.remove()
        return made(self.folder)


def divided(source: Path, folder: Path, division: Division, **options: Any) -> Made:
    maker = Maker(source, folder, **options)
    for begin, end in division:
        assert maker.make(begin, end) == maker.begun == list(range(begin, end))
    return maker.join()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_video(tmp_path_factory.mktemp("video") / "in.mp4")


@pytest.fixture(scope="module")
def whole(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return divided(source, tmp_path_factory.mktemp("whole"), [(0, PIECES)])


@pytest.mark.parametrize("division", first(1, [[(n, n + 1) for n in reversed(range(PIECES))], [(3, PIECES), (0, 3)]]))
def test_the_division_does_not_show(division: Division, source: Path, whole: Made, tmp_path: Path) -> None:
    assert divided(source, tmp_path, division) == whole


def test_a_span_gives_its_memory_back(source: Path, tmp_path: Path) -> None:
    """At once, not when Python looks for garbage: on a GPU, decoder and stages hold planes for batches of frames."""
    maker = Maker(source, tmp_path)
    gc.collect()
    gc.disable()
    try:
        maker.make(0, 1)
        assert not [one for one in gc.get_objects() if isinstance(one, SpanRun | Decoder | Compositor)]
    finally:
        gc.enable()
    maker.session.close()


def test_results_and_masks_are_those_of_an_ordinary_run(source: Path, whole: Made, tmp_path: Path) -> None:
    segment(source, tmp_path / "out.mp4", **OPTIONS, **files(tmp_path))  # type: ignore[arg-type]
    ordinary = made(tmp_path)
    assert (ordinary.results, ordinary.masks) == (whole.results, whole.masks)


def test_larger_batches_make_the_same_pieces(source: Path, whole: Made, tmp_path: Path) -> None:
    assert divided(source, tmp_path, [(0, 2), (2, PIECES)], batch_size=16) == whole


@pytest.mark.slow
def test_a_span_that_is_shortened_leaves_the_rest_to_others(source: Path, whole: Made, tmp_path: Path) -> None:
    maker = Maker(source, tmp_path)
    first = maker.make(0, PIECES, shorten=3)
    assert first == list(range(len(first))) and 3 <= len(first) < PIECES
    maker.make(len(first), PIECES)
    assert maker.join() == whole


@pytest.mark.slow
def test_other_streams_come_once(source: Path, whole: Made, tmp_path: Path) -> None:
    assert whole
    divided(source, tmp_path, [(0, PIECES)])
    assert same_packets(packets(tmp_path / "out.mp4", "audio"), packets(source, "audio"))
    assert times(tmp_path / "out.mp4") == times(source)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"codec": "hevc"}, marks=pytest.mark.slow),
        pytest.param({"codec": "av1", "preset": "12"}, marks=pytest.mark.slow),
        pytest.param({"effect": "mask", "codec": "ffv1"}, marks=pytest.mark.slow),
        pytest.param({"max_frames": 301, "refine": False}, marks=pytest.mark.slow),
        {"verify": True, "rle": True, "quality": 0},
    ],
    ids=str,
)
def test_options(options: dict[str, Any], source: Path, tmp_path: Path) -> None:
    maker = Maker(source, tmp_path / "a", **options)
    count = len(maker.plan.pieces)
    maker.make(0, count)
    assert maker.join() == divided(source, tmp_path / "b", [(n, n + 1) for n in range(count)], **options)


@pytest.mark.slow
def test_a_stretch_is_that_of_an_ordinary_run(source: Path, tmp_path: Path) -> None:
    stretch = {"start": 3.3, "duration": 15.1, "smooth": 1.0}
    maker = Maker(source, tmp_path / "a", **stretch)
    count = len(maker.plan.pieces)
    assert count > 2
    maker.make(1, count)
    maker.make(0, 1)
    pieces = maker.join()
    segment(source, tmp_path / "b" / "out.mp4", **{**OPTIONS, **stretch, **files(tmp_path / "b")})
    ordinary = made(tmp_path / "b")
    assert (pieces.results, pieces.masks) == (ordinary.results, ordinary.masks)
    assert times(tmp_path / "a" / "out.mp4") == times(tmp_path / "b" / "out.mp4")


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Real videos are short: pieces may be, too."""
    monkeypatch.setattr(planning, "SHORTEST", 1)
    monkeypatch.setattr(planning, "GOPS", 2)
    monkeypatch.setattr(planning, "LONGEST", 3)
    yield


@pytest.mark.slow
@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("name", sorted(path.name for path in (SHARED / "corpus").glob("*.*")))
def test_real_videos(name: str, tmp_path: Path) -> None:
    source = SHARED / "corpus" / name
    options = {"preset": "ultrafast", "max_frames": 400}
    try:
        maker = Maker(source, tmp_path / "a", **options)
    except InputError:
        pytest.skip("is no video that can be read")
    count = len(maker.plan.pieces)
    maker.make(0, count)
    whole = maker.join()
    assert whole == divided(source, tmp_path / "b", [(n, n + 1) for n in reversed(range(count))], **options)
    (tmp_path / "c").mkdir()
    segment(source, tmp_path / "c" / "out.mp4", **{**OPTIONS, **options, **files(tmp_path / "c")})
    assert (whole.results, whole.masks) == (made(tmp_path / "c").results, made(tmp_path / "c").masks)


def test_a_damaged_piece_is_made_again(source: Path, tmp_path: Path) -> None:
    maker = Maker(source, tmp_path)
    maker.make(0, 2)
    path = maker.pieces.file(1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(OutputError, match="is damaged"):
        PieceFile(path, maker.plan.digest, 1)
    assert maker.pieces.done(maker.plan) == {0} and not path.exists()


def test_exchanged_pieces_are_found_at_once(source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of one video, and of two whose pieces have the same numbers."""
    maker, other = Maker(source, tmp_path / "a"), Maker(source, tmp_path / "b", effect="mask")
    maker.make(0, 2)
    other.make(0, 1)
    first, second = maker.pieces.file(0), maker.pieces.file(1)
    with pytest.raises(OutputError, match=r"000001\.piece: is damaged \(it is piece 1, not 0\)"):
        join(maker.plan, [second, first], tmp_path / "out.mp4", overwrite=True)
    with pytest.raises(OutputError, match=r"\(it is piece 0 of other work, not 0\)"):
        join(maker.plan, [other.pieces.file(0)], tmp_path / "out.mp4", overwrite=True)
    assert not (tmp_path / "out.mp4").exists()
    first.write_bytes(second.read_bytes())
    assert maker.pieces.done(maker.plan) == {1} and not first.exists()
    assert "it is piece 1, not 0" in caplog.text and "is made again" in caplog.text


def test_pieces_of_another_encoder_are_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VideoPlan, "digest", "the same")  # as if two builds of the encoder had made the pieces
    maker = Maker(source, tmp_path)
    other = Maker(source, tmp_path / "other", codec="hevc")
    other.make(0, 1)
    with pytest.raises(OutputError, match="its encoder has other parameters"):
        join(maker.plan, [other.pieces.file(0)], tmp_path / "out.mp4", overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["libx265", "libvpx-vp9"])
def test_open_groups_and_hidden_frames(codec: str, tmp_path: Path) -> None:
    """HEVC's keyframes are followed by pictures that are shown before them; VP9 has frames that are never shown."""
    options = {
        "libx265": {"x265-params": "log-level=none:keyint=12:min-keyint=12:open-gop=1:scenecut=0:bframes=3"},
        "libvpx-vp9": {"g": "12", "cpu-used": "8", "deadline": "good", "auto-alt-ref": "1", "lag-in-frames": "10"},
    }
    name = "in.mp4" if codec == "libx265" else "in.mkv"
    source = long_video(tmp_path / name, codec=codec, options=options[codec], size=(64, 64), frames=400)
    maker = Maker(source, tmp_path / "a")
    count = len(maker.plan.pieces)
    assert count > 2
    maker.make(0, count)
    whole = maker.join()
    assert whole == divided(source, tmp_path / "b", [(n, n + 1) for n in reversed(range(count))])
    (tmp_path / "c").mkdir()
    segment(source, tmp_path / "c" / "out.mp4", **OPTIONS, **files(tmp_path / "c"))
    ordinary = made(tmp_path / "c")
    assert (whole.results, whole.masks) == (ordinary.results, ordinary.masks)


@pytest.mark.slow
def test_a_frame_between_ticks_is_in_the_right_piece(tmp_path: Path) -> None:
    """Variable distances between frames."""
    pts = [40 * n + (n * 7) % 13 for n in range(400)]
    source = long_video(
        tmp_path / "in.mp4", pts=pts, size=(64, 48), time_base=Fraction(1, 1000), last_duration=40, audio=None
    )
    maker = Maker(source, tmp_path / "a")
    count = len(maker.plan.pieces)
    assert count > 2
    maker.make(0, count)
    assert maker.join() == divided(source, tmp_path / "b", [(n, n + 1) for n in range(count)])
