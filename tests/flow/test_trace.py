"""The trace of a run: all of it, in the right place and time, whole or not there."""

import errno
import io
import itertools
import json
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from marks import first
from program import TIMEOUT, cli, start
from videos import Synthetic, times

from segmentation import OutputError, segment
from segmentation.flow.threads import StageThreads
from segmentation.flow.timing import StageClock
from segmentation.flow.trace import DeviceClock, Trace
from segmentation.frames import FrameBatch
from segmentation.options.config import STAGES

Event = dict[str, Any]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 frames."""
    return Synthetic(codec="libx264", pts=range(100)).write(tmp_path_factory.mktemp("clip") / "clip.mp4")


def events(path: Path) -> list[Event]:
    content = json.loads(path.read_text())
    assert content["displayTimeUnit"] == "ms" and content["otherData"]["source"] == "clip.mp4"
    return list(content["traceEvents"])


def spans(everything: list[Event], name: str) -> list[Event]:
    return [e for e in everything if e["ph"] == "X" and e["name"] == name]


@pytest.fixture(scope="module")
def traced(clip: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """The events of a whole run in batches of 3, the last of which has one frame."""
    path = tmp_path_factory.mktemp("traced") / "trace.json"
    segment(clip, path.with_name("a.mp4"), mode="baseline", infer="onnxruntime", batch_size=3, trace=path)
    assert {p.name for p in path.parent.iterdir()} == {"a.mp4", "trace.json"}
    return events(path)


@pytest.mark.slow
def test_events_are_those_of_the_format(traced: list[Event]) -> None:
    assert {e["ph"] for e in traced} == {"X", "C", "M"}
    assert {e["pid"] for e in traced} == {os.getpid()}
    for event in traced:
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["tid"], int)
            assert event["args"].keys() in (set(), {"batch", "frame"})


def test_every_batch_is_in_every_stage(traced: list[Event]) -> None:
    expected = [(number, 3 * number) for number in range(34)]
    for stage in (*STAGES, "mux"):
        numbers = [(e["args"]["batch"], e["args"]["frame"]) for e in spans(traced, stage) if e["args"]]
        assert sorted(numbers) == expected, stage
        if stage in ("decode", "encode", "mux"):  # those that have one thread
            assert numbers == expected
    assert {e["name"] for e in traced if e["ph"] == "X"} == {*STAGES, "mux"}


def test_times_of_a_thread_follow_each_other(traced: list[Event]) -> None:
    ends: dict[int, float] = defaultdict(float)
    for event in traced:
        if event["ph"] == "X":
            assert event["ts"] >= ends[event["tid"]] - 0.002  # microseconds: both are rounded
            ends[event["tid"]] = event["ts"] + event["dur"]


def test_a_batch_is_in_one_place_at_a_time(traced: list[Event]) -> None:
    walks: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for stage in (*STAGES, "mux"):
        for event in spans(traced, stage):
            if event["args"]:
                walks[event["args"]["batch"]].append((event["ts"], event["ts"] + event["dur"]))
    for walk in walks.values():
        assert all(before[1] <= after[0] + 0.002 for before, after in itertools.pairwise(walk))


def test_tracks_are_named_for_what_happens_there(traced: list[Event]) -> None:
    names = {e["tid"]: e["args"]["name"] for e in traced if e["name"] == "thread_name"}
    assert names.keys() == {e["tid"] for e in traced if e["ph"] == "X"}
    # Which stage a thread of the pool worked at first is chance.
    stages = {frozenset(name.split(", ")) for name in names.values()}
    assert stages == {
        frozenset(name.split()) for name in ("decode", "preprocess infer postprocess", "encode", "mux encode")
    }
    for stage in STAGES:
        assert all(stage in names[e["tid"]] for e in spans(traced, stage))
    (process,) = (e for e in traced if e["name"] == "process_name")
    assert process["args"] == {"name": "segmentation"}


def test_queues_are_counted(traced: list[Event]) -> None:
    for queue in ("decoded", "processed", "encoded"):
        counts = [e for e in traced if e["ph"] == "C" and e["name"] == queue]
        assert len(counts) == 2 * 34  # in and out
        assert {e["args"]["waiting"] for e in counts} <= {0, 1, 2}
        assert counts[-1]["args"]["waiting"] == 0


def test_overlap_can_be_seen(tmp_path: Path) -> None:
    """Two parts that each take 20 ms a batch, tied together as the pipeline does: at most times both are at work."""
    batches = [FrameBatch(frames=(), index=i, number=i) for i in range(12)]
    with Trace(tmp_path / "a.json", "clip.mp4", False) as trace, StageThreads(watch=trace.depth) as overlapped:
        clock = StageClock(None, trace)

        def slow() -> Any:
            for batch in batches:
                time.sleep(0.02)
                yield batch

        for batch in overlapped(clock.steps("decode", slow()), "decoded"):
            clock.call("encode", batch, time.sleep, 0.02)
        trace.finish()
    everything = events(tmp_path / "a.json")
    both = 0.0
    for one in spans(everything, "decode"):
        for other in spans(everything, "encode"):
            ends = one["ts"] + one["dur"], other["ts"] + other["dur"]
            both += max(0.0, min(ends) - max(one["ts"], other["ts"]))
    assert both > 0.6 * sum(e["dur"] for e in spans(everything, "encode"))


def test_memory_does_not_grow(tmp_path: Path) -> None:
    with Trace(tmp_path / "a.json", "clip.mp4", False) as trace:
        for i in range(100_000):
            trace.span("encode", (i, i), 0, 10)
        assert len(trace._events) < 1000
        trace.finish()
    assert len(spans(events(tmp_path / "a.json"), "encode")) == 100_000


def test_without_the_option_there_is_none(clip: Path, tmp_path: Path) -> None:
    segment(clip, tmp_path / "a.mp4", max_frames=3)
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_a_run_that_fails_leaves_none(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Any, batch: FrameBatch) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("segmentation.stages.encode.pyav.PyAVEncoder.encode", failing)
    with pytest.raises(ZeroDivisionError):
        segment(clip, tmp_path / "a.mp4", mode="baseline", trace=tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_stopped_leaves_one(clip: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    path = tmp_path / "a.json"
    result = segment(clip, tmp_path / "a.mp4", stop=stop, progress=lambda done, expected: stop.set(), trace=path)
    assert 0 < result.frames < 100
    assert len([e for e in spans(events(path), "mux") if e["args"]]) == result.frames


@pytest.mark.slow
@pytest.mark.parametrize("number", first(1, [signal.SIGINT, signal.SIGTERM]))
def test_a_signal_leaves_one(tmp_path: Path, number: signal.Signals) -> None:
    clip = Synthetic(codec="libx264", pts=range(800)).write(tmp_path / "clip.mp4")
    path = tmp_path / "a.json"
    with start(clip, "-o", tmp_path / "a.mp4", "--trace", path) as process:
        process.until(lambda: any(p.stat().st_size > 10_000 for p in tmp_path.glob(".a.*.json")))
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + number and "Traceback" not in stderr
    assert {p.name for p in tmp_path.iterdir()} == {"a.mp4", "a.json", "clip.mp4"}
    assert len(spans(events(path), "encode")) > 10


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("nowhere/a.json", "nowhere does not exist"),
        (".", "is a folder"),
        ("there.json", "exists already; use -y (overwrite=True) to replace it, or --trace to name another"),
        ("clip.mp4", "is the input itself"),
        ("clip.segmented.mp4", "is the output too"),
        ("n" * 256, "cannot be written"),
        ("/proc/a.json", "is a device or a link to one"),
    ],
)
def test_a_path_that_cannot_be_is_refused_before_any_work(clip: Path, tmp_path: Path, path: str, hint: str) -> None:
    here = tmp_path / clip.name
    here.write_bytes(clip.read_bytes())
    (tmp_path / "there.json").write_text("mine")
    before = sorted(p.name for p in tmp_path.iterdir())
    result = cli("clip.mp4", "--trace", path, cwd=tmp_path)
    assert result.returncode in (1, 2) and result.stdout == ""
    assert hint in result.stderr and len(result.stderr.splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert (tmp_path / "there.json").read_text() == "mine"


def test_a_full_disk_costs_the_trace_but_not_the_video(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def writelines(self, lines: Iterable[str]) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def start_full(self: Trace, *arguments: Any) -> None:
        original(self, *arguments)
        self._file.close()
        self._file = Full()

    original = Trace.__init__
    monkeypatch.setattr(Trace, "__init__", start_full)
    with pytest.raises(OutputError, match=r"a\.json: the trace cannot be written \(No space left on device\)"):
        segment(clip, tmp_path / "a.mp4", trace=tmp_path / "a.json")
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]
    assert len(times(tmp_path / "a.mp4")) == 100


def test_several_inputs_have_no_common_trace(clip: Path, tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).write_bytes(clip.read_bytes())
    result = cli(tmp_path / "*.mp4", "--trace", tmp_path / "a.json")
    assert result.returncode == 2
    other = clip.with_name("other.mp4")
    other.write_bytes(clip.read_bytes())
    result = cli(clip, other, "-o", tmp_path, "--trace", tmp_path / "a.json")
    assert result.returncode == 2 and "one file for one input" in result.stderr


def test_an_existing_one_is_replaced_when_that_is_asked_for(clip: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(OutputError, match="exists already"):
        segment(clip, tmp_path / "a.mp4", max_frames=3, trace=path)
    segment(clip, tmp_path / "a.mp4", max_frames=3, trace=str(path), overwrite=True)
    assert len(spans(events(path), "decode")) == 3 + 1  # the last step finds the end


class FakeGpu:
    """A GPU whose clock is ahead by an hour and runs fast, and whose events are passed when somebody says so."""

    def __init__(self) -> None:
        self.passed = True

    def record_event(self, *, timed: bool) -> "FakeEvent":
        assert timed
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.at = 3.6e6 + time.perf_counter_ns() / 1e6 * 1.001  # milliseconds

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return self._gpu.passed

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.at - self.at


class FakeStage:
    memory = "cuda"

    def __call__(self) -> None:
        time.sleep(0.005)


def test_the_gpus_times_are_on_a_track_of_their_own(tmp_path: Path) -> None:
    gpu = FakeGpu()
    with Trace(tmp_path / "a.json", "clip.mp4", False) as trace:
        clock = StageClock(gpu, trace)
        gpu.passed = False  # nothing is waited for
        for i in range(20):
            clock.stage("infer", FrameBatch(frames=(), index=16 * i, number=i), FakeStage())
        gpu.passed = True
        assert 0.05 <= clock.totals()["infer"] < 1  # 20 times 5 ms, on a machine that may be busy
        trace.finish()
    everything = events(tmp_path / "a.json")
    host, device = ([e for e in spans(everything, "infer") if e["cat"] == kind] for kind in ("host", "gpu"))
    assert [e["args"] for e in host] == [e["args"] for e in device] == [dict(batch=i, frame=16 * i) for i in range(20)]
    assert len({e["tid"] for e in host + device}) == 2
    (track,) = (
        e["args"]["name"]
        for e in everything
        if e["ph"] == "M" and e.get("tid") == device[0]["tid"]
        if "name" in e["args"]
    )
    assert track == "GPU: infer"
    for queued, done in zip(host, device, strict=True):  # the drift is a thousandth of 100 ms
        assert abs(done["ts"] - queued["ts"]) < 1000 and abs(done["dur"] - queued["dur"]) < 1000


def test_the_gpus_clock_is_kept_within_what_is_possible() -> None:
    """Work is not before it was queued, nor after it was seen to be over, however far the clocks drift apart."""
    gpu = FakeGpu()
    clock = DeviceClock(gpu)
    begin, end = FakeEvent(gpu), FakeEvent(gpu)
    zero = clock._at
    origin = clock._last.at
    begin.at, end.at = origin + 10, origin + 12
    assert clock.place(begin, end, zero, zero + 20_000_000) == (zero + 10_000_000, zero + 12_000_000)
    early, late = FakeEvent(gpu), FakeEvent(gpu)
    early.at, late.at = origin + 20, origin + 22
    assert clock.place(early, late, zero + 21_000_000, zero + 40_000_000) == (zero + 21_000_000, zero + 23_000_000)
    slow, last = FakeEvent(gpu), FakeEvent(gpu)  # from here on a millisecond later; seen to be over before that
    slow.at, last.at = origin + 30, origin + 32
    assert clock.place(slow, last, zero, zero + 31_000_000) == (zero + 29_000_000, zero + 31_000_000)


@pytest.mark.gpu
def test_on_a_gpu_every_batch_is_on_its_track(tmp_path: Path) -> None:
    clip = Synthetic(codec="libx264", pts=range(200), size=(320, 240)).write(tmp_path / "clip.mp4")
    path = tmp_path / "a.json"
    segment(clip, tmp_path / "a.mp4", mode="optimized", batch_size=16, trace=path)
    everything = events(path)
    batches = [e["args"] for e in spans(everything, "decode") if e["args"]]
    assert [b["batch"] for b in batches] == list(range(len(batches))) and len(batches) >= 13
    ends = 0.0
    for event in (e for e in everything if e.get("cat") == "gpu"):  # one stream: one after the other
        assert event["ts"] >= ends - 0.002 and event["dur"] > 0
        ends = event["ts"] + event["dur"]
    for stage in ("preprocess", "infer", "postprocess"):
        host, device = ([e for e in spans(everything, stage) if e["cat"] == kind] for kind in ("host", "gpu"))
        assert [e["args"] for e in host] == [e["args"] for e in device] == batches
        assert all(done["ts"] >= queued["ts"] - 0.002 for queued, done in zip(host, device, strict=True))
    (track,) = {e["tid"] for e in everything if e.get("cat") == "gpu"}
    assert any(
        e["args"] == {"name": "GPU: preprocess, infer, postprocess"}
        for e in everything
        if e["ph"] == "M" and e.get("tid") == track
    )
