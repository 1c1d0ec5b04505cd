"""`--audit`: what is doubtful, with pictures of the covered output alone."""

import base64
import hashlib
import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from paths import SAMPLE
from program import cli
from videos import pictures

from segmentation import Config, ConfigError


def test_a_face_that_ends_with_the_stretch_is_doubtful_where_it_is_lost(tmp_path: Path) -> None:
    """In the middle of the video the face of the sample is hidden, so that it is lost and comes back."""
    source, target, page = lost_in_the_middle(tmp_path / "in.mp4"), tmp_path / "out.mp4", tmp_path / "check.html"
    done = cli(source, "-o", target, "--anonymize", "faces", "--audit", page, "--strict", "--json")
    assert done.returncode == 4, done.stderr
    spans = json.loads(done.stdout)["doubtful"]
    assert spans >= 2 and f", {spans} doubtful spans, " in done.stderr and ": incomplete or doubtful, " in done.stderr
    text = page.read_text()
    assert "comes into view" in text and "is lost amid the picture" in text
    assert '<meta name="viewport"' in text and "max-width:100%" in text  # it fits a telephone
    assert hashlib.sha256(source.read_bytes()).hexdigest() in text
    assert hashlib.sha256(target.read_bytes()).hexdigest() in text
    shown = [base64.b64decode(data) for data in re.findall(r"base64,([^\"]+)", text)]
    pictures = [cv2.imdecode(np.frombuffer(one, np.uint8), cv2.IMREAD_COLOR) for one in shown]
    assert pictures and all(picture is not None for picture in pictures)

    done = cli(source, "-o", target, "-y", "--anonymize", "faces", "--audit", tmp_path / "check.json", "--json")
    assert done.returncode == 0, done.stderr
    about = json.loads((tmp_path / "check.json").read_text())
    assert {one["kind"] for one in about["doubtful"]} >= {"appears", "vanishes"}
    lines = {one["kind"]: one["correction"] for one in about["doubtful"]}
    assert re.fullmatch(r"cover (\d+\.\d%,?){4}@\d+\.\d\d-\d+\.\d\d", lines["vanishes"]), lines
    assert about["settings"]["anonymize"] == "faces" and about["frames"] == 22
    assert about["settings"]["overwrite"] is True  # as JSON, not as a text

    done = cli(source, "-o", target, "-y", "--anonymize", "faces")
    assert " doubtful spans (--audit FILE.html shows them), " in done.stderr
    assert "effects" not in about["settings"]  # what follows from others
    assert all(track["supposed"] < track["frames"] for track in about["tracks"])


def test_spans_that_a_review_decides_are_no_longer_doubtful(tmp_path: Path) -> None:
    """The report's own lines settle all of it, and one of them alone settles its own span."""
    source, target, listed = lost_in_the_middle(tmp_path / "in.mp4"), tmp_path / "out.mp4", tmp_path / "check.json"
    review, options = tmp_path / "review.txt", ("-y", "--anonymize", "faces", "--audit", listed)
    assert cli(source, "-o", target, *options).returncode == 0
    spans = json.loads(listed.read_text())["doubtful"]
    for count in (1, len(spans)):
        review.write_text("\n".join(one["correction"] for one in spans[:count]))
        done = cli(source, "-o", target, *options, "--review", review, "--strict")
        assert done.returncode == (0 if count == len(spans) else 4), done.stderr
        about = json.loads(listed.read_text())
        kinds = [[one["kind"] for one in about[part]] for part in ("reviewed", "doubtful")]
        assert kinds == [[one["kind"] for one in part] for part in (spans[:count], spans[count:])]
    page = tmp_path / "check.html"
    assert cli(source, "-o", target, *options[:-1], page, "--review", review).returncode == 0
    text = page.read_text()
    assert "<h1>0 doubtful spans" in text and text.count("<br>reviewed<") == len(spans) == text.count("base64,")


def test_a_head_is_covered_in_all_frames_of_its_span(tmp_path: Path) -> None:
    """The line of the report was for less than the last one, in which the head was seen."""
    listed, review, covered = tmp_path / "check.json", tmp_path / "review.txt", tmp_path / "out.mkv"
    options = ("-o", covered, "-y", "--max-frames", 7, "--codec", "ffv1", "--anonymize", "faces", "--audit", listed)
    assert cli(SAMPLE, *map(str, options)).returncode == 0
    (bare,) = [one for one in json.loads(listed.read_text())["doubtful"] if one["kind"] == "bare"]
    assert (bare["begin"], bare["end"]) == (0, 0.2)
    review.write_text(bare["correction"])
    done = cli(SAMPLE, *map(str, options), "--review", review, "--strict")
    assert done.returncode == 0, done.stderr
    shares = np.clip(bare["box"], 0, 1)
    left, top, right, bottom = np.rint(shares * [640, 360, 640, 360]).astype(int)
    shown = list(pictures(covered))
    assert len(shown) == 7 and all((one.planes[0][top:bottom, left:right] == 16).all() for one in shown)


def lost_in_the_middle(path: Path) -> Path:
    """At 5 frames a second: the sample's first frames, small, two seconds with gray over the face, and they again."""
    import av

    with av.open(str(SAMPLE)) as container:
        frames = [
            frame.to_ndarray(format="rgb24", width=320, height=180)
            for _, frame in zip(range(6), container.decode(video=0), strict=False)
        ]
    hidden = frames[-1].copy()
    hidden[20:135, 105:225] = 128
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = hidden.shape[1], hidden.shape[0], "yuv420p"
        for picture in (*frames, *[hidden] * 10, *frames):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        out.mux(stream.encode(None))
    return path


@pytest.mark.parametrize(
    "options, message",
    [
        ({"audit": "a.html"}, "audit: reports what --anonymize covers"),
        ({"audit": "a.html", "anonymize": "people"}, "lists boxes, of which anonymize people has none"),
    ],
)
def test_what_has_no_report(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**options)  # type: ignore[arg-type]


def test_another_suffix_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = cli(SAMPLE, "-o", tmp_path / "o.mp4", "--anonymize", "faces", "--audit", tmp_path / "a.txt")
    assert done.returncode == 2 and "name a file that ends in .html or .json" in done.stderr
    assert not list(tmp_path.iterdir())
