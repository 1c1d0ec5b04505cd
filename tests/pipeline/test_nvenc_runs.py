"""Whole runs with NVENC on a GPU, by the stand-in of `support/nvenc/nvenc.c` where the GPU has none."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import standin
from program import cli, report
from videos import pictures, times

pytestmark = pytest.mark.gpu

Choose = Callable[..., None]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without the note that this GPU has no NVENC."""
    return tmp_path_factory.mktemp("engines")


@pytest.fixture
def nvenc(engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Lets programs that are started find the stand-in; returns a function that chooses what it does."""
    standin.build()

    def choose(**variables: str) -> None:
        for name, value in standin.environment(LOG=str(tmp_path / "log"), **variables).items():
            monkeypatch.setenv(name, value)

    monkeypatch.setenv("SEGMENTATION_ENGINES", str(engines))
    choose()
    return choose


def difference(a: Path, b: Path) -> float:
    """Returns the PSNR of two files' luma to each other."""
    errors = [
        np.square(p.planes[0].astype(float) - q.planes[0]).mean() for p, q in zip(pictures(a), pictures(b), strict=True)
    ]
    return float(10 * np.log10(255**2 / max(float(np.mean(errors)), 1e-9)))


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_frames_and_times_are_those_of_x264(codec: str, people: Path, nvenc: Choose, tmp_path: Path) -> None:
    """Also where NVENC reads late, and nothing stays in surfaces that were given back."""
    ours, theirs = tmp_path / "nvenc.mp4", tmp_path / "x264.mp4"
    nvenc(POISON="1", DELAY="2")
    options = ("--codec", codec, "--quality", "high")
    done = report(cli(people, "-o", ours, "--encode", "nvenc", *options, "--json"))
    assert done["plan"]["encode"] == "nvenc"
    report(cli(people, "-o", theirs, "--encode", "x264", *options, "--json"))
    assert times(ours) == times(theirs) and len(times(ours)) == len(times(people))
    assert difference(ours, theirs) > 42
    (session,) = (s for s in standin.sessions(tmp_path) if s["submitted"])
    assert session["submitted"] == session["compared"] == session["poisoned"] == len(times(people))
    assert session["mapped"] == session["changed"] == 0


def test_several_outputs_at_once(people: Path, nvenc: Choose, tmp_path: Path) -> None:
    nvenc(POISON="1")
    files = [tmp_path / f"{name}.mp4" for name in ("blur", "color", "mask")]
    also = ("--also", f"color:{files[1]}", "--also", f"mask:{files[2]}")
    report(cli(people, "-o", files[0], *also, "--encode", "nvenc", "--json"))
    assert [times(file) for file in files] == [times(people)] * 3
    assert len([s for s in standin.sessions(tmp_path) if s["submitted"]]) == 3


@pytest.mark.parametrize(
    ("fault", "words", "kept"),
    [
        ("memory@20", "consumer cards take few encoders at once, or the GPU's memory is full", False),
        ("lost@20", "the GPU failed (h264_nvenc: Input/output error)", True),
        ("no-encoder", "this GPU has no NVENC", False),
        ("preset", "the preset is not supported", False),
    ],
)
def test_faults_are_one_line(
    fault: str,
    words: str,
    kept: bool,
    people: Path,
    nvenc: Choose,
    folder: Path,
    tmp_path: Path,
) -> None:
    """After the first frames a lost GPU leaves a file that plays. That there is no NVENC is noted in `folder`."""
    nvenc(FAULT=fault)
    out = tmp_path / "out.mp4"
    result = cli(people, "-o", out, "--encode", "nvenc")
    errors = [line for line in result.stderr.splitlines() if words in line]
    assert result.returncode != 0 and len(errors) == 1, result.stderr
    assert out.exists() == kept and (not kept or 0 < len(times(out)) < len(times(people)))


def test_one_session_too_many(people: Path, nvenc: Choose, tmp_path: Path) -> None:
    nvenc(FAULT="sessions@1")
    result = cli(people, "-o", tmp_path / "a.mp4", "--also", f"mask:{tmp_path / 'b.mp4'}", "--encode", "nvenc")
    assert result.returncode != 0 and "consumer cards take few encoders at once" in result.stderr
