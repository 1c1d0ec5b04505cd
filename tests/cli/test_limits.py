"""Runs that do not end by themselves: a network that loops, a server that stalls. Signals and `--timeout` end them."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from paths import SAMPLE
from program import TIMEOUT, running, start
from quick import cli
from server import Server, serving


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """A network that adds 0 to its output for ever."""
    tensor = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes"]),
            helper.make_node("Add", ["value", "zero"], ["next"]),
        ],
        "body",
        [
            tensor("number", TensorProto.INT64, []),
            tensor("going", TensorProto.BOOL, []),
            tensor("value", TensorProto.FLOAT, [1, 1, 32, 48]),
        ],
        [tensor("goes", TensorProto.BOOL, []), tensor("next", TensorProto.FLOAT, [1, 1, 32, 48])],
    )
    constants = {"zero": np.float32(0), "trips": np.int64(1 << 62), "yes": np.bool_(True)}
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["picture", "axes"], ["first"], keepdims=1),
            helper.make_node("Loop", ["trips", "yes", "first"], ["mask"], body=body),
        ],
        "loop",
        [tensor("picture", TensorProto.FLOAT, [1, 3, 32, 48])],
        [tensor("mask", TensorProto.FLOAT, [1, 1, 32, 48])],
        [
            *(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()),
            numpy_helper.from_array(np.array([1], np.int64), "axes"),
        ],
    )
    path = tmp_path / "loop.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Has the sample with its index at the beginning, so that frames come before the stall."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.mp4").write_bytes(SAMPLE.read_bytes())
    with serving(tmp_path / "served") as server:
        yield server


def cpu_seconds(process: int) -> float:
    """The processor's time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def handles_signals(process: int) -> bool:
    """Whether the program's own handlers are there: Python by itself has none of SIGTERM."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.M)
    return bool(int(caught, 16) >> signal.SIGTERM - 1 & 1)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_a_network_that_loops_ends_at_the_second_signal(loop: Path, tmp_path: Path) -> None:
    before = left(tmp_path)
    with start(SAMPLE, "-o", tmp_path / "a.mp4", "--model", loop) as process:
        assert process.stderr is not None
        process.until(lambda: handles_signals(process.pid))
        begin = cpu_seconds(process.pid)
        process.until(lambda: cpu_seconds(process.pid) > begin + 4)  # more than it takes from there to the network
        process.send_signal(signal.SIGINT)
        assert any("another Ctrl-C ends at once" in line for line in process.stderr)
        time.sleep(0.5)  # sooner, it would be the same signal
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
        assert "error" not in process.stderr.read()
    assert left(tmp_path) == before


@pytest.mark.slow
def test_a_network_that_loops_runs_out_of_time(loop: Path, tmp_path: Path) -> None:
    before = left(tmp_path)
    done = cli(SAMPLE, SAMPLE, "-o", tmp_path / "a.mp4", "--model", loop, "--timeout", "2")
    assert done.returncode == 124 and left(tmp_path) == before
    assert done.stderr == f"segmentation: error: {SAMPLE}: was ended after 2 s (--timeout); nothing was written\n"


@pytest.mark.slow
def test_an_input_that_takes_long_leaves_time_for_the_next(server: Server, tmp_path: Path) -> None:
    stalled, other = f"{server.address}/stall/1000/a.mp4", SAMPLE
    done = cli(stalled, other, "-o", tmp_path / "out", "--effect", "mask", "--max-frames", 3, "--timeout", "30")
    assert done.returncode == 124 and f"error: {stalled}: was ended after 30 s (--timeout)" in done.stderr
    assert "1 done, 1 failed" in done.stderr and left(tmp_path / "out") == {f"{SAMPLE.stem}.segmented.mp4"}


@pytest.mark.slow
def test_frames_before_the_end_are_not_kept(server: Server, tmp_path: Path) -> None:
    before = left(tmp_path)
    done = cli(f"{server.address}/stall/200000/a.mp4", "-o", tmp_path / "a.mp4", "--effect", "mask", "--timeout", "6")
    assert done.returncode == 124 and left(tmp_path) == before


def test_time_enough_changes_nothing(tmp_path: Path) -> None:
    assert cli(SAMPLE, "-o", tmp_path / "a.mp4", "--max-frames", 3, "--timeout", "10:00:00").returncode == 0
    assert cli(SAMPLE, "-o", tmp_path / "b.mp4", "--timeout", "0").returncode == 2


@pytest.mark.parametrize("count", [1000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_stalled_download_ends_at_the_first_signal(server: Server, tmp_path: Path, count: int) -> None:
    """While the input is being opened, or after some frames: then these are kept."""
    target = tmp_path / "a.mp4"
    with start(f"{server.address}/stall/{count}/a.mp4", "-o", target, "--effect", "mask") as process:
        process.until(lambda: bool(server.asked))
        if count > 1000:
            process.until(lambda: any(path.stat().st_size for path in tmp_path.glob(".a.*.part.mp4")))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130 and "another Ctrl-C ends at once" in stderr and "Traceback" not in stderr
    assert target.exists() == (count > 1000), stderr


def test_nothing_is_left_after_the_second_signal(tmp_path: Path) -> None:
    with running(tmp_path, SAMPLE, "-o", tmp_path / "a.mp4", "--quality", "high") as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None and any("another Ctrl-C" in line for line in process.stderr)
        time.sleep(0.5)  # sooner, it would be the same signal
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
    assert not left(tmp_path) - {"a.mp4"}


@pytest.mark.slow
def test_an_ignored_ctrl_c_stays_ignored(tmp_path: Path) -> None:
    """As in the background of a script."""
    before = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    with start(SAMPLE, "-o", tmp_path / "a.mp4", "--json", before=before) as process:
        process.until(lambda: any(tmp_path.glob(".a.*.part.mp4")))
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0 and json.loads(stdout)["frames"] == 150, stderr
