"""Runs of still pictures: `Segmenter.run` where input and output are pictures."""

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import photos
import pytest
from paths import SAMPLE
from program import cli, report

from segmentation import ConfigError, InputError, OutputError, Segmenter, segment
from segmentation.cli.main import main
from segmentation.media.pictures.exif import exif_of
from segmentation.pipeline.output_paths import default_output

BASELINE = {"mode": "baseline", "infer": "onnxruntime"}


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(**BASELINE) as session:
        yield session


@pytest.mark.parametrize("effect", ["blur:25", "color:#00b140", "mask", "cutout"])
@pytest.mark.parametrize("suffix", [".png", ".webp", ".jpg"])
def test_a_picture_is_what_apply_makes_of_it(segmenter: Segmenter, tmp_path: Path, suffix: str, effect: str) -> None:
    if (suffix, effect) == (".jpg", "cutout"):
        return
    rgb = photos.photo()
    source = photos.write(tmp_path / "in.png", rgb)
    done = segmenter.run(source, tmp_path / f"out{suffix}", effect=effect, quality=100)
    expected = segmenter.apply(rgb, effect=effect)
    shown = photos.read(tmp_path / f"out{suffix}")
    assert (done.frames, done.damaged, done.complete) == (1, 0, True)
    assert shown.shape == expected.shape  # odd as it is
    seen = expected[..., 3] > 0 if effect == "cutout" else np.ones(rgb.shape[:2], bool)
    assert np.abs(shown.astype(int) - expected)[seen].max() <= (12 if suffix == ".jpg" else 0)
    assert not shown[~seen].any() or suffix == ".webp"  # which fills what is transparent anew


def test_people_are_kept_bit_for_bit_in_pngs(segmenter: Segmenter, tmp_path: Path) -> None:
    rgb = photos.photo()
    segmenter.run(photos.write(tmp_path / "in.png", rgb), tmp_path / "out.png")
    kept = segmenter.masks(rgb) > 0.99
    same = (photos.read(tmp_path / "out.png") == rgb).all(axis=2)
    assert kept.any() and same[kept].mean() > 0.999 and not same.all()


def test_a_turned_photograph_with_a_profile(segmenter: Segmenter, tmp_path: Path) -> None:
    upright = photos.photo()
    stored = np.ascontiguousarray(np.rot90(upright))
    source = photos.write(tmp_path / "in.png", stored, orientation=6, profile=photos.PROFILE)
    for name in ("out.png", "out.jpg", "out.webp"):
        segmenter.run(source, tmp_path / name)
        assert photos.read(tmp_path / name).shape == upright.shape
        assert photos.PROFILE in (tmp_path / name).read_bytes() or name == "out.png"  # compressed there
    assert np.array_equal(photos.read(tmp_path / "out.png"), segmenter.apply(upright))


def test_alpha_of_the_input(segmenter: Segmenter, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rgb = photos.photo()
    alpha = np.zeros(rgb.shape[:2], np.uint8)
    alpha[:, 100:] = 255
    source = photos.write(tmp_path / "in.png", np.dstack([rgb, alpha]))
    also = [("cutout", tmp_path / "cut.webp"), ("mask", tmp_path / "mask.png"), ("blur", tmp_path / "white.jpg")]
    done = segmenter.run(source, tmp_path / "out.png", also=also)
    assert done.also == tuple(str(path) for _, path in also)
    assert np.array_equal(photos.read(tmp_path / "out.png")[..., 3], alpha)
    cut = segmenter.apply(rgb, effect="cutout")[..., 3]
    assert cut[:, :100].any() and np.array_equal(photos.read(tmp_path / "cut.webp")[..., 3], np.where(alpha, cut, 0))
    assert photos.read(tmp_path / "mask.png").ndim == 3 and photos.read(tmp_path / "mask.png").shape[2] == 3
    assert (photos.read(tmp_path / "white.jpg")[:, :80] > 250).all()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'white.jpg'}: .jpg files have no alpha; transparent parts become white"
    ]


def test_results(segmenter: Segmenter, tmp_path: Path) -> None:
    rgb = photos.photo()
    source = photos.write(tmp_path / "in.png", rgb)
    segmenter.run(source, tmp_path / "out.png", results=tmp_path / "out.jsonl", rle=True)
    (line,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    share = (segmenter.masks(rgb) > 0.5).mean()
    assert (line["index"], line["pts"], line["classes"]) == (0, 0.0, ["person"]) and line["rle"]["counts"]
    assert abs(line["area"] - share) < 0.01 and abs(line["pixels"] - share * rgb[..., 0].size) < 0.01 * rgb.size


@pytest.mark.parametrize(
    ("target", "options", "error", "hint"),
    [
        ("a.jpg", {"effect": "cutout"}, OutputError, "can't hold a cutout's alpha; name a .png or .webp"),
        ("a.png", {"also": [("mask", "m.mp4")]}, OutputError, "m.mp4: outputs of a picture are pictures too"),
        ("a.png", {"save_masks": "m.mkv"}, ConfigError, "write --also mask:FILE.png"),
        ("a.png", {"masks": "m.mkv"}, ConfigError, "saved masks belong to a run of their video"),
        ("a.png", {"verify": True}, ConfigError, "leave it out for pictures"),
        ("a.png", {"trace": "t.json"}, ConfigError, "leave it out for pictures"),
        ("a.png", {"results": "r.xml", "results_format": "cvat"}, ConfigError, "results format cvat: has instances"),
        ("a.png", {"results": "%d.txt", "results_format": "yolo"}, ConfigError, "pictures have lines"),
        ("a.webp", {"quality": 0}, ConfigError, "quality 0: webp takes 100 (best) to 1"),
        ("no/a.png", {}, OutputError, "the folder no does not exist"),
    ],
)
def test_what_a_picture_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, options: dict[str, Any], error: Any, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source = photos.write(tmp_path / "in.png", photos.photo(61, 40))
    with pytest.raises(error) as caught:
        segment(source, target, mode="baseline", **options)
    assert hint in str(caught.value) and "\n" not in str(caught.value) and list(tmp_path.iterdir()) == [source]


def test_existing_files_stay(segmenter: Segmenter, tmp_path: Path) -> None:
    source = photos.write(tmp_path / "in.png", photos.photo(61, 40))
    (tmp_path / "m.png").write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        segmenter.run(source, tmp_path / "out.png", also=[("mask", tmp_path / "m.png")])
    assert (tmp_path / "m.png").read_text() == "mine" and not (tmp_path / "out.png").exists()
    segmenter.run(source, tmp_path / "m.png", overwrite=True)
    assert photos.read(tmp_path / "m.png").shape == (40, 61, 3)


def test_an_exception_of_progress_leaves_no_file(segmenter: Segmenter, tmp_path: Path) -> None:
    def fail(done: int, expected: int) -> None:
        raise KeyError("mine")

    source = photos.write(tmp_path / "in.png", photos.photo(61, 40))
    others: dict[str, Any] = {"also": [("mask", tmp_path / "m.png")], "results": tmp_path / "out.jsonl"}
    with pytest.raises(KeyError, match="mine"):
        segmenter.run(source, tmp_path / "out.png", progress=fail, **others)
    assert list(tmp_path.iterdir()) == [source]


def test_a_video_is_no_picture(segmenter: Segmenter, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds one picture"):
        segmenter.run(SAMPLE, tmp_path / "a.jpg", max_frames=2)
    broken = photos.write(tmp_path / "in.jpg", photos.photo())
    broken.write_bytes(broken.read_bytes()[:5000])
    with pytest.raises(InputError, match="damaged or cut off"):
        segmenter.run(broken, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == [broken]


def test_a_video_named_as_a_picture_becomes_a_video(segmenter: Segmenter, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").symlink_to(SAMPLE)
    done = segmenter.run(tmp_path / "a.jpg", max_frames=2)
    assert done.output == str(tmp_path / "a.segmented.mp4") and done.frames == 2
    assert default_output(photos.write(tmp_path / "b.jpg", photos.photo())) == tmp_path / "b.segmented.jpg"
    (tmp_path / "c.jpg").write_bytes(bytes(range(7, 256)) * 9)  # broken, which its run says
    assert default_output(str(tmp_path / "c.jpg")) == tmp_path / "c.segmented.jpg"


def test_a_picture_without_a_suffix_becomes_a_picture(segmenter: Segmenter, tmp_path: Path) -> None:
    """As downloads have it."""
    photo = photos.write(tmp_path / "b.jpg", photos.photo()).rename(tmp_path / "photo")
    assert segmenter.run(photo).output == str(tmp_path / "photo.segmented.png")
    for name, data in (("video", SAMPLE.read_bytes()), ("broken", b"nothing")):
        (tmp_path / name).write_bytes(data)
        assert default_output(str(tmp_path / name)) == tmp_path / f"{name}.segmented.mp4"


@pytest.mark.parametrize(
    ("suffix", "codec", "form"),
    [("tga", "targa", "bgr24"), ("pcx", "pcx", "rgb24"), ("sgi", "sgi", "rgb24"), ("dpx", "dpx", "rgb24")],
)
def test_a_picture_of_a_rare_kind_becomes_a_png(
    segmenter: Segmenter, tmp_path: Path, suffix: str, codec: str, form: str
) -> None:
    rgb = photos.photo(64, 48)
    encoder: Any = av.CodecContext.create(codec, "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = 64, 48, form, Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(rgb, "rgb24").reformat(format=form)
    data = b"".join(map(bytes, [*encoder.encode(frame), *encoder.encode(None)]))
    (tmp_path / f"in.{suffix}").write_bytes(data)
    done = segmenter.run(tmp_path / f"in.{suffix}", effect="mask", invert=True)
    assert done.output == str(tmp_path / "in.segmented.png") and photos.read(done.output).shape == rgb.shape


def test_a_folder_of_pictures_and_a_video(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    photos.write(folder / "a.jpg", photos.photo())
    photos.write(folder / "b.png", photos.photo(64, 48), orientation=6)
    (folder / "c.png").write_bytes((folder / "b.png").read_bytes()[:500])
    (folder / "d.mp4").symlink_to(SAMPLE)
    done = cli(folder, "-o", tmp_path / "out", "--json", "--max-frames", 2)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and [line.get("frames") for line in lines] == [1, 1, None, 2]
    assert "c.png: is damaged or cut off" in lines[2]["error"]
    assert "pictures are written without --max-frames" in done.stderr and "3 done, 1 failed: 4 frames" in done.stderr
    assert photos.read(tmp_path / "out" / "b.segmented.png").shape == (64, 48, 3)


def test_the_default_name(tmp_path: Path) -> None:
    source = photos.write(tmp_path / "a.jpg", photos.photo(61, 40))
    done = report(cli(source, "--json", "-q"))
    assert done["output"] == str(tmp_path / "a.segmented.jpg") and Path(done["output"]).is_file()
    assert done["plan"]["encode"] == "opencv" and done["frames"] == 1


@pytest.mark.parametrize("hidden", [[], ["--anonymize", "faces", "--keep-metadata"]])
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_metadata_stays_behind_with_a_line(
    tmp_path: Path, suffix: str, hidden: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for name, place in (("home", True), ("turned", False)):
        photos.write(tmp_path / f"{name}{suffix}", photos.photo(64, 48), orientation=6, place=place)
    assert exif_of((tmp_path / f"home{suffix}").read_bytes())
    assert main([str(tmp_path), "-o", str(tmp_path / "out/"), *hidden]) == 0
    err = capfd.readouterr().err
    assert err.count("pictures are written without --keep-metadata") == bool(hidden), "said once"
    assert re.findall(r"(\w+)\.\w+: is written without its (.*)", err) == [("home", "EXIF with the place")]
    outputs = list((tmp_path / "out").iterdir())
    assert len(outputs) == 2 and not any(exif_of(path.read_bytes()) for path in outputs)
    assert all(photos.read(path).shape == (64, 48, 3) for path in outputs)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_exif_does_not_end_a_video_of_one_picture(tmp_path: Path, suffix: str) -> None:
    source = photos.write(tmp_path / f"a{suffix}", photos.photo(64, 48), orientation=6)
    assert report(cli(source, "-o", tmp_path / "a.mkv", "--json", "-q"))["frames"] == 1


def test_only_the_named_file_is_opened(segmenter: Segmenter, tmp_path: Path) -> None:
    """A name with a percent sign is itself where such a file exists."""
    for number in (1, 2):
        photos.write(tmp_path / f"{number}.png", photos.photo(64, 48))
    source = photos.write(tmp_path / "%d.png", photos.photo(61, 40))
    done = segmenter.run(source, tmp_path / "out%d.png")
    assert done.frames == 1 and photos.read(tmp_path / "out%d.png").shape == (40, 61, 3)


def test_limits_hold_for_pictures(segmenter: Segmenter, tmp_path: Path) -> None:
    photos.write_animation(tmp_path / "a.webp", [np.full((40, 50, 3), level, np.uint8) for level in (9, 99)], [50, 50])
    for source in (photos.PHOTO, tmp_path / "a.webp"):
        with (
            Segmenter(max_pixels=1000) as limited,
            pytest.raises(InputError, match=r"more than 1000 are refused \(--max-pixels\)"),
        ):
            limited.run(source, tmp_path / "b.webp")
    assert {path.name for path in tmp_path.iterdir()} == {"a.webp"}


def test_leftovers_of_a_killed_run_are_removed(segmenter: Segmenter, tmp_path: Path) -> None:
    (tmp_path / ".a.0123abcd.part.png").write_bytes(b"half")
    segmenter.run(photos.PHOTO, tmp_path / "a.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
