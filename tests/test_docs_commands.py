"""Commands and programs in the documents run as they are written, beside files of the names that they use."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from documents import DOCUMENTS, command_lines, fenced, words
from paths import ROOT, SAMPLE, SHARED
from program import TIMEOUT
from projects import write_project
from videos import repeated

from segmentation.cli.arguments import config_from, parse
from segmentation.cli.serve import make_serve_parser

VIDEOS = "input in long shop studio upload a folder/one pictures/three videos/one videos/two".split()
PICTURES = "photo.jpg folder/two.jpg pictures/one.png frames/00001.png frames/00002.png anim.gif".split()
NETWORKS = {name: name for name in ("faces-yunet.onnx", "faces-masked-rfb640.onnx")} | {
    "faces.onnx": "faces-yunet.onnx"
}
ELSEWHERE = re.compile(
    r"://|:9100|/dev/video|\.engine|tools/|^(curl|docker|systemd-run|make|pip|uvx|python tools|tests/)\b"
    r"|^segmentation( serve|-build)\b"
    r"|^(#!|\.|export|compute-sanitizer)|ffplay|SLURM|\bray |^pytest -m .?(gpu|whole_card)\b"
)  # needs a network, a camera, a GPU, a display or a cluster, or installs something
GIVEN = """
import cv2

picture = first = second = cv2.imread("photo.jpg")[:, :, ::-1]
videos = ["input.mp4", "long.mp4"]
"""  # what the text around the programs speaks of


def blocks(language: str) -> list[Any]:
    """Returns the blocks of all documents."""
    return [
        pytest.param(block, id=f"{path.name}-{number}")
        for path in DOCUMENTS
        for number, block in enumerate(fenced(path, language), 1)
    ]


def options() -> list[str]:
    """Returns all lines that start the program, those too that need a camera or a network."""
    lines = itertools.chain.from_iterable(command_lines(block) for path in DOCUMENTS for block in fenced(path, "sh"))
    return [line for line in lines if words(line)[0] == "segmentation"]


@pytest.mark.parametrize("line", options())
def test_options_are_accepted(line: str) -> None:
    arguments = words(re.split(r" [|>] ?", line)[0])[1:]
    if arguments[0] == "serve":
        make_serve_parser().parse_args(arguments[1:])
    else:
        config_from(parse(arguments))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the files that documents name: the sample, its first picture, a project, and networks."""
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    for name in VIDEOS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(SAMPLE, tmp_path / f"{name}.mp4")
    repeated(SAMPLE, tmp_path / "b.mkv", 1)
    picture = cv2.VideoCapture(str(SAMPLE)).read()[1]
    for name in PICTURES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        assert cv2.imwrite(str(tmp_path / name), picture)
    drawn = np.zeros(picture.shape[:2], np.float32)
    drawn[100:200, 100:200] = 1
    write_project(tmp_path / "input.project.json", picture.shape[1::-1], {0.2: drawn})
    for name, source in NETWORKS.items():
        if (SHARED / "models" / source).exists():
            (tmp_path / name).symlink_to(SHARED / "models" / source)
    return tmp_path


def run(command: list[str], place: Path) -> None:
    """Runs a command in a folder, with the program of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("sh"))
def test_commands_run(block: str, place: Path) -> None:
    lines = [line for line in command_lines(block) if not ELSEWHERE.search(line)]
    lines = [line for line in lines if all((place / net).exists() for net in re.findall(r"[\w.-]+\.onnx", line))]
    if shutil.which("ffmpeg") is None:
        lines = [line for line in lines if "ffmpeg" not in line]
    if not lines:
        pytest.skip("all of it needs a network, a camera, a GPU or other files")
    run(["bash", "-e", "-x", "-c", "\n".join(lines)], place)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("python"))
def test_programs_run(block: str, place: Path) -> None:
    if re.search(r"://|torch|ClipDataset", block):
        pytest.skip("it needs cameras or a folder of clips")
    if any(not (place / name).exists() for name in re.findall(r"[\w-]+\.onnx", block)):
        pytest.skip("it needs networks that are not here")
    run([sys.executable, "-c", f"{GIVEN}\n{block}"], place)
