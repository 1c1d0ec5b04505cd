"""The steps by themselves make the output of `--workers`, also as jobs of Slurm and Kubernetes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from pieced import FRAMES, OPTIONS, PIECES, files, long_video, made

from segmentation.cli.pieces import main

BATCH = ROOT / "deploy" / "batch"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_video(tmp_path_factory.mktemp("video") / "in.mp4")


def plan(source: Path, folder: Path) -> list[str]:
    names = {name.replace("_", "-"): str(value) for name, value in (OPTIONS | files(folder)).items()}
    return ["plan", str(source), "-o", str(folder / "out.mp4"), *(f"--{name}={value}" for name, value in names.items())]


def shell(script: str, folder: Path, **variables: str) -> None:
    """Runs a script in a folder, with `segmentation-pieces` on the path."""
    command = folder / "bin" / "segmentation-pieces"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m segmentation.cli.pieces "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(["sh", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def jobs() -> dict[str, tuple[str, str, int]]:
    """Each kind of job: its script, the variable with the task's number, and how many tasks to run."""
    kubernetes = re.search(r"command: (\[.*\])", (BATCH / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert kubernetes is not None
    return {
        "slurm": ((BATCH / "slurm.sh").read_text(encoding="utf-8"), "SLURM_ARRAY_TASK_ID", 2),
        "kubernetes": (json.loads(kubernetes[1])[2], "JOB_COMPLETION_INDEX", 4),
    }


@pytest.mark.slow
def test_jobs_make_what_workers_make(source: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected"
    expected.mkdir()
    for arguments in (plan(source, expected), ["make", str(expected / "out.mp4")], ["join", str(expected / "out.mp4")]):
        assert main(arguments) == 0
    for kind, (script, variable, tasks) in jobs().items():
        folder = tmp_path / kind
        folder.mkdir()
        assert main(plan(source, folder)) == 0
        for number in reversed(range(tasks)):
            shell(script, folder, **{variable: str(number), "SLURM_ARRAY_TASK_COUNT": str(tasks)})
        shell("segmentation-pieces join out.mp4", folder)
        assert made(folder) == made(expected)
        assert not list(folder.glob(".*"))


@pytest.mark.slow
def test_missing_pieces_are_named_and_made_again(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(plan(source, tmp_path)) == 0
    assert capsys.readouterr().out == f"{PIECES}\n"
    output = str(tmp_path / "out.mp4")
    assert main(["make", output, "0/2"]) == 0
    assert main(["join", output]) == 1
    assert "missing or damaged pieces: 2, 3, 4; run" in capsys.readouterr().err
    pieces = sorted((tmp_path / ".out.mp4.pieces").glob("*.piece"))
    kept, damaged = pieces[0].stat().st_mtime_ns, pieces[1]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert main(["make", output]) == 0
    assert pieces[0].stat().st_mtime_ns == kept
    assert main(["join", output, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frames"] == FRAMES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["make", "out.mp4", "4/4"], "give K/N with K from 0"),
        (["make", "out.mp4"], "holds no plan"),
        (["plan", "in.mp4"], "and the output with -o"),
        (["plan", "SOURCE", "-o", "out.gif"], "makes no pieces"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str],
    message: str,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main([str(source) if one == "SOURCE" else one for one in arguments])
    except SystemExit as exc:
        assert isinstance(exc.code, int)
        code = exc.code
    error = capsys.readouterr().err
    assert code and message in error and "Traceback" not in error
    assert not list(tmp_path.iterdir())
