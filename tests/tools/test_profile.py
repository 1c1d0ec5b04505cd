"""Profiles of Nsight Systems: the script that makes them, what is read from them, what the optimized run's shows."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from videos import Synthetic

from segmentation.options.config import STAGES

SCRIPT = ROOT / "tools" / "benchmarks" / "profile.sh"
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))  # the tools are programs, not a package

from profile_verdict import BETWEEN, BLOCKING, ELSEWHERE, Profile, measure, union, verdict, within  # noqa: E402

# As nsys 2025.3 exports them, but for columns that nobody here reads.
SCHEMA = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
    "category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, "
    "domainId INTEGER, uint64Value INTEGER, int64Value INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, "
    "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "graphId INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "syncType INTEGER NOT NULL, eventId INTEGER NOT NULL",
}
PROCESS, ENCODE, DECODER = 11, 12, 13  # threads
MS = 1_000_000


class Writer:
    """Writes a profile, table by table."""

    def __init__(self, path: Path, tables: Iterable[str] = tuple(SCHEMA)) -> None:
        self.path = path
        self._database = sqlite3.connect(path)
        self._strings: dict[str, int] = {}
        for table in tables:
            self._database.execute(f"CREATE TABLE {table} ({SCHEMA[table]})")

    def add(self, table: str, **values: Any) -> None:
        columns, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
        self._database.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(values.values()))

    def text(self, value: str) -> int:
        if value not in self._strings:
            self._strings[value] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[value], value=value)
        return self._strings[value]

    def domain(self, number: int, name: str) -> None:
        self.add("NVTX_EVENTS", start=0, eventType=75, text=name, domainId=number)

    def range(
        self, name: str, thread: int, begin: int, end: int | None, *, domain: int = 1, plain: bool = False
    ) -> None:
        how = {"text": name} if plain else {"textId": self.text(name)}
        times = {"start": begin * MS, "end": None if end is None else end * MS}
        self.add("NVTX_EVENTS", **times, eventType=59, globalTid=thread, domainId=domain, **how)

    def call(self, name: str, thread: int, begin: float, end: float) -> None:
        times = {"start": round(begin * MS), "end": round(end * MS), "eventClass": 0, "returnValue": 0}
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **times, globalTid=thread, nameId=self.text(name))

    def kernel(self, begin: int, end: int) -> None:
        where = {"deviceId": 0, "contextId": 1, "streamId": 7, "demangledName": 1, "shortName": 1}
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", start=begin * MS, end=end * MS, **where)

    def graph(self, begin: int, end: int) -> None:
        self.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=begin * MS, end=end * MS, deviceId=0, graphId=1)

    def copy(self, kind: int, size: int, begin: int, end: int, *, host: int = 1) -> None:
        where = {"deviceId": 0, "contextId": 1, "streamId": 7}
        ends = {"srcKind": host if kind == 1 else 2, "dstKind": host if kind == 2 else 2}
        times = {"start": begin * MS, "end": end * MS}
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", **times, **where, **ends, bytes=size, copyKind=kind)

    def synchronization(self, kind: int, begin: int) -> None:
        where = {"deviceId": 0, "contextId": 1, "streamId": 7, "eventId": 0}
        times = {"start": begin * MS, "end": begin * MS}
        self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **times, **where, syncType=kind)

    def close(self) -> Path:
        self._database.commit()
        self._database.close()
        return self.path


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Four batches of 100 ms: 20 in postprocess, of which a kernel follows; the encoder waits, copies, encodes."""
    made = Writer(tmp_path / "run.sqlite")
    made.domain(1, "segmentation")
    made.domain(2, "CCCL")
    for i in range(4):
        begin = 100 * i
        made.range("preprocess", PROCESS, begin, begin + 5, plain=i % 2 == 1)
        made.range("infer", PROCESS, begin + 5, begin + 8)
        made.range("postprocess", PROCESS, begin + 10, begin + 30)
        made.range("sort", PROCESS, begin + 11, begin + 12, domain=2)
        made.range("wait", ENCODE, begin + 20, begin + 40)
        made.range("encode", ENCODE, begin + 40, begin + 90)
        made.graph(begin + 30, begin + 40)
        made.kernel(begin + 35, begin + 50)
        made.copy(2, 3000, begin + 50, begin + 60)
        made.copy(1, 16, begin + 70, begin + 71, host=0)
        made.call("cudaEventSynchronize_v3020", ENCODE, begin + 21, begin + 39)
        made.call("cuEventSynchronize", ENCODE, begin + 22, begin + 38)  # inside of the other: the same wait
        made.call("cudaLaunchKernel_v7000", PROCESS, begin + 12, begin + 13)
        made.call("cuStreamSynchronize", DECODER, begin + 50, begin + 51)
        made.synchronization(1, begin + 21)
        made.synchronization(2, begin + 50)
    made.call("cudaStreamSynchronize_v3020", PROCESS, 109, 109.5)
    made.call("cudaDeviceSynchronize_v3020", PROCESS, 5, 6)  # before the steady state
    made.range("infer", PROCESS, 400, None)  # not over when the profile ended
    return made.close()


def test_numbers(profile: Path) -> None:
    numbers = measure(Profile(profile))
    assert numbers["steady"] == {"seconds": pytest.approx(0.280), "batches": 2}  # from 30 to 310 ms
    stages = numbers["stages"]
    assert stages.keys() == {"preprocess", "infer", "postprocess", "wait", "encode"}
    assert stages["encode"] == {"calls": 4, "seconds": pytest.approx(0.2), "steady_share": pytest.approx(150 / 280)}
    assert stages["infer"]["calls"] == 4
    gpu = numbers["gpu"]
    assert gpu["busy_seconds"] == pytest.approx(0.093)  # three times 30 to 60 and 70 to 71
    assert gpu["busy_share"] == pytest.approx(93 / 280)
    assert gpu["longest_gap_seconds"] == pytest.approx(0.059)
    assert numbers["copies"] == {
        "device to host": {"count": 3, "bytes": 9000, "largest": 3000, "pageable": 0},
        "host to device": {"count": 3, "bytes": 48, "largest": 16, "pageable": 3},
    }
    assert numbers["waits"] == {
        "wait": {"cudaEventSynchronize": 2},  # at 121 and 221
        ELSEWHERE: {"cuStreamSynchronize": 3},
        BETWEEN: {"cudaStreamSynchronize": 1},
    }
    assert numbers["synchronizations"] == 2


def test_verdict(profile: Path) -> None:
    lines = list(verdict(measure(Profile(profile))))
    assert lines[-1] == (
        "verdict: encode is busiest with 54% of the time; the pipeline's threads wait for the GPU 1.5 times a batch"
    )
    assert "GPU: busy 33.2%, longest gap 59.00 ms" in lines
    assert any(line.startswith("host to device: 48 bytes") and "pageable" in line for line in lines)


def test_a_machine_without_a_gpu_has_fewer_tables(tmp_path: Path) -> None:
    made = Writer(tmp_path / "cpu.sqlite", ["StringIds", "NVTX_EVENTS"])
    made.domain(1, "segmentation")
    for i in range(4):
        made.range("postprocess", PROCESS, 10 * i, 10 * i + 5)
    numbers = measure(Profile(made.close()))
    assert numbers["gpu"]["busy_share"] == 0 and numbers["gpu"]["longest_gap_seconds"] == pytest.approx(0.025)
    assert numbers["copies"] == numbers["waits"] == {}
    assert "never wait for the GPU" in list(verdict(numbers))[-1]


@pytest.mark.parametrize("tables", [[], ["StringIds", "NVTX_EVENTS"]])
def test_without_ranges_it_says_why(tmp_path: Path, tables: list[str]) -> None:
    lines = list(verdict(measure(Profile(Writer(tmp_path / "x.sqlite", tables).close()))))
    assert len(lines) == 1 and "nvtx" in lines[0]


def test_a_short_run_has_no_steady_state(tmp_path: Path) -> None:
    made = Writer(tmp_path / "x.sqlite")
    made.domain(1, "segmentation")
    made.range("postprocess", PROCESS, 0, 5)
    assert "no steady state" in list(verdict(measure(Profile(made.close()))))[-1]


def test_workers_share(tmp_path: Path) -> None:
    """Two threads that both infer all the time do so 100% of it, whatever a third did before."""
    made = Writer(tmp_path / "x.sqlite")
    made.domain(1, "segmentation")
    made.range("infer", 3, 0, 5)
    for i in range(4):
        for thread in (1, 2):
            made.range("postprocess", thread, 100 * i, 100 * i + 10)
            made.range("infer", thread, 100 * i + 10, 100 * i + 100)
    assert measure(Profile(made.close()))["stages"]["infer"]["steady_share"] == pytest.approx(270 / 290)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize"),
        ("cuCtxSynchronize", "cuCtxSynchronize"),
        ("cuStreamSynchronize_ptsz", "cuStreamSynchronize"),
        ("cudaMemcpy_v3020", "cudaMemcpy"),
        ("cudaMemcpy2D_v3020", "cudaMemcpy2D"),
        ("cuMemcpyDtoH_v2", "cuMemcpyDtoH"),
        ("cudaFree_v3020", "cudaFree"),
        ("cudaMemcpyAsync_v3020", None),
        ("cuMemcpy2DAsync_v2", None),
        ("cudaFreeAsync_v11020", None),
        ("cudaFreeHost_v3020", None),
        ("cudaEventQuery_v3020", None),
        ("cudaStreamWaitEvent_v3020", None),
    ],
)
def test_what_blocks(name: str, function: str | None) -> None:
    match = BLOCKING.fullmatch(name)
    assert (match and match[1]) == function


def test_intervals() -> None:
    assert union([(5, 7), (0, 2), (1, 3), (6, 6)]) == [(0, 3), (5, 7)]
    assert within([(0, 3), (5, 7), (8, 9)], (2, 6)) == [(2, 3), (5, 6)]


def test_what_is_no_profile_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("no database, but longer than nothing" * 99)
    for name in ("x.sqlite", "missing.sqlite"):
        command = [sys.executable, ROOT / "tools" / "benchmarks" / "profile_verdict.py", tmp_path / name]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and "is no profile" in done.stderr and len(done.stderr.splitlines()) == 1


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the script; its results go to tmp_path / "profiles"."""

    def script(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        places = {"PROFILE_DIR": str(tmp_path / "profiles"), "PYTHON": sys.executable}
        command = [str(SCRIPT), *map(str, arguments)]
        return subprocess.run(
            command, env={**os.environ, **places, **environment}, capture_output=True, text=True, cwd=tmp_path
        )

    return script


@pytest.mark.parametrize("arguments", [[], ["fast", "a.mp4"], ["optimized"]])
def test_wrong_usage(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and done.stderr.startswith("usage: tools/benchmarks/profile.sh")


def test_the_script_runs_what_it_says(run: Run, profile: Path, tmp_path: Path) -> None:
    """With a stand-in for nsys, which keeps its arguments and exports the profile made above."""
    nsys = tmp_path / "nsys"
    nsys.write_text(
        f"""#!/bin/sh
        echo "$@" >> {tmp_path}/log
        case $1 in
            export) cp {profile} "$6" ;;
            stats) case $3 in nvtx_sum) exit 1 ;; *) echo "table $3" ;; esac ;;
        esac
        """.replace("        ", "", 1)
    )
    nsys.chmod(0o755)
    done = run("baseline", "in.mp4", "--max-frames", "9", NSYS=str(nsys))
    assert done.returncode == 0, done.stderr
    report = tmp_path / "profiles" / "baseline"
    profiled, exported, *stats = (tmp_path / "log").read_text().splitlines()
    assert profiled == (
        f"profile --trace cuda,nvtx,osrt --output {report} --force-overwrite=true "
        f"{sys.executable} -m segmentation --baseline -o {report}.mp4 -y in.mp4 --max-frames 9"
    )
    assert exported.endswith(f"--output {report}.sqlite {report}.nsys-rep")
    assert [line.split()[2] for line in stats] == [
        *("nvtx_sum", "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum")
    ]
    assert "this nsys has no nvtx_sum" in done.stdout and "table cuda_gpu_kern_sum" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("verdict: encode is busiest")
    assert json.loads(report.with_suffix(".json").read_text())["steady"]["batches"] == 2


def test_without_nsys_it_says_what_to_install(run: Run, tmp_path: Path) -> None:
    done = run("baseline", "in.mp4")
    if done.returncode != 3:
        pytest.skip("nsys is here")
    assert "install the package nsight-systems-cli" in done.stderr and done.stdout == ""
    assert not (tmp_path / "profiles").exists()


@pytest.fixture
def profiled(run: Run, tmp_path: Path) -> Callable[[str, Path], Profile]:
    """Profiles a run on the GPU."""

    def profile_of(mode: str, clip: Path) -> Profile:
        # A first run converts the network, for which its weights come to the host.
        first = [sys.executable, "-m", "segmentation", clip, "-o", tmp_path / "first.mp4", "--max-frames", "16", "-q"]
        subprocess.run([*first, "--baseline"] if mode == "baseline" else first, cwd=ROOT, check=True)
        done = run(mode, clip, "--batch-size", "16", "--preset", "ultrafast")
        if done.returncode == 3 and "nsys is not here" in done.stderr:
            pytest.skip("nsys is neither on PATH nor where NVIDIA's packages put it")
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout)
        return Profile(tmp_path / "profiles" / f"{mode}.sqlite")

    return profile_of


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """640 frames, 40 batches: half of them are past what a start brings along."""
    options = {"preset": "ultrafast", "x264-params": "keyint=64:min-keyint=64:scenecut=0"}
    video = Synthetic(codec="libx264", options=options, pts=range(640), size=(640, 480))
    return video.write(tmp_path_factory.mktemp("clip") / "clip.mp4")


CHROMA = 320 * 240  # bytes: the smallest plane of a frame of the clip
FRAME = 6 * CHROMA


@pytest.mark.gpu
def test_the_optimized_run_copies_nothing_and_waits_once_a_batch(
    profiled: Callable[[str, Path], Profile], clip: Path
) -> None:
    """But for the hand-over of finished frames to an encoder on the CPU, where there is no NVENC."""
    from segmentation import Config
    from segmentation.pipeline.planning.plan import make_plan

    in_memory = make_plan(Config(mode="optimized")).encode.name == "nvenc"
    profile = profiled("optimized", clip)
    numbers = measure(profile)
    batches, stages = numbers["steady"]["batches"], numbers["stages"]
    assert {*STAGES, "mux"} <= stages.keys() and batches >= 30
    assert all(stages[stage]["calls"] >= batches for stage in STAGES)
    assert 0 < numbers["gpu"]["busy_share"] <= 1

    copies = numbers["copies"]
    uploads = copies.get("host to device", {"largest": 0, "bytes": 0})
    assert uploads["largest"] < CHROMA and uploads["bytes"] < FRAME * batches
    # Of the whole run: a batch that was queued in the steady state may be copied a moment later.
    downloads = [(size, pageable) for _, direction, size, pageable in profile.copies() if direction == "device to host"]
    planes = [size for size, _ in downloads if size >= CHROMA]
    assert sum(planes) == (0 if in_memory else 640 * FRAME)
    assert sum(size for size, _ in downloads) - sum(planes) < FRAME
    assert not any(pageable for size, pageable in downloads if size >= CHROMA)

    # What waits in threads of libraries is theirs: NVDEC's returns a picture when it is there.
    own = {where: functions for where, functions in numbers["waits"].items() if where != ELSEWHERE}
    assert own.keys() <= ({"encode", "wait"} if in_memory else {"wait"})
    # An event that has passed is not waited for, so none may be. Some are on their way at either end.
    assert sum(own.get("wait", {}).values()) <= batches + 4


@pytest.mark.gpu
def test_the_baseline_can_be_profiled_too(profiled: Callable[[str, Path], Profile], clip: Path) -> None:
    stages = measure(profiled("baseline", clip))["stages"]
    assert {*STAGES, "mux"} <= stages.keys()
