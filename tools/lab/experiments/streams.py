"""Measures many streams at once: live ones in real time, and by tracker, interval and networks as fast as they go.

    python tools/lab/experiments/streams.py live --streams 1,2,4
    python tools/lab/experiments/streams.py live --streams 8,16 --size 1920x1080 --fps 30 --interval 3      # on a GPU
    python tools/lab/experiments/streams.py experiments VIDEO --models ../shared/models --encode null       # on a GPU
    python tools/lab/experiments/streams.py experiments VIDEO --models ../shared/models --streams 2,4 --size 640x360
    python tools/lab/experiments/streams.py report a.json b.json -o page.html

`live`: how many streams one machine carries, how late their frames are, what is dropped. Cameras of the tests' RTSP
server, sixteen in a process on the same machine, send the sample's first two seconds round and round, each from
another frame on. One session takes all of them at once, each to a file of its own, in as many processes as are asked
for. With `--no-video` these files are results and saved masks. A first run of 60 frames warms up. All sources connect
at the same moment, so that the first seconds are about that; the figures from `--settle` seconds on stand beside those
of the whole run.

`experiments`: see `stream_experiments.py`. `report`: one table and one page of what several machines have measured.
For Linux.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # so that a checkout works without being installed

import stream_experiments
import stream_report
from circumstances import ROOT, circumstances
from rtsp_server import RtspServer, recording
from secondary_networks import pipelines
from stream_experiments import THREE

from segmentation import Config, Report, Segmenter
from segmentation.flow.threads import switch_rarely
from segmentation.frames.latency import BOUNDS, Histogram
from segmentation.frames.source import Source
from segmentation.pipeline.planning.parallelism import choose_parallelism
from segmentation.pipeline.stream_status import StreamStatus
from segmentation.sessions.processes import session

RESULTS = ROOT / "tools" / "lab" / "results"
WARM_UP = 60  # frames
SERVED = 16  # cameras of one process: more would wait for each other
END = 1.0  # seconds before a run's end that the settled figures leave out: processes tell theirs each half second
IN_TIME = 0.15  # seconds, one of the bounds of latencies
Figures = dict[str, Any]


def cameras(connection: Connection, numbers: range, count: int, size: tuple[int, int], fps: int) -> None:
    """Serves the cameras of these numbers, of `count` in all, until the connection is closed."""
    recorded = recording(str(ROOT / "samples" / "astronaut.mp4"), size, fps)
    servers = [
        RtspServer(size=size, fps=fps, recorded=recorded, phase=number * len(recorded) // count).__enter__()
        for number in numbers
    ]
    connection.send([server.url() for server in servers])
    with suppress(EOFError):
        connection.recv()
    connection.send(max(server.slowest for server in servers))


def batch_size(options: argparse.Namespace, urls: list[str]) -> int | None:
    """Returns that of the command's session."""
    config, sources = Config(batch_size=options.batch_size), [Source.parse(url) for url in urls]
    return choose_parallelism(config, sources, "auto", options.processes).applied(config).batch_size


def measure(options: argparse.Namespace, count: int, folder: Path) -> Figures:
    """Returns the figures of `count` streams at once."""
    context = get_context("spawn")
    ends = []
    for begin in range(0, count, SERVED):
        ours, theirs = context.Pipe()
        numbers = range(begin, min(begin + SERVED, count))
        arguments = (theirs, numbers, count, options.size, options.fps)
        context.Process(target=cameras, args=arguments, daemon=True).start()
        ends.append(ours)
    urls = [url for end in ends for url in end.recv()]
    if batch_size(options, urls) != options.batch_size:  # as the command does
        switch_rarely()
    settings = {"model": options.model, "interval": options.interval, "overwrite": True, "max_delay": options.max_delay}
    settings |= {"low_delay": options.low_delay, "max_interval": options.max_interval, "encode": options.encode}
    settings |= {"decode": options.decode, "track": options.track, "batch_size": batch_size(options, urls)}
    settings |= {"anonymize": options.anonymize}
    settings |= {} if options.models is None else pipelines(options.models)[THREE]

    def outputs(number: int) -> Figures:
        """Returns what names the files of one stream."""
        if not options.video:
            files = {"results": folder / f"{number}.jsonl", "save_masks": folder / f"{number}.mkv"}
            return {"video": False, **files}
        return {"output": folder / f"{number}.mkv", "preset": None if options.encode == "jpeg" else "ultrafast"}

    def run(number: int, limit: Figures) -> Report:
        ready.wait()
        return segmenter.run(urls[number], **outputs(number), **limit)

    with session(options.processes, **settings) as segmenter, ThreadPoolExecutor(count) as pool:
        for limit in ({"max_frames": WARM_UP}, {"duration": options.seconds}):
            ready = threading.Barrier(count + 1)
            running = pool.map(run, range(count), [limit] * count)
            ready.wait()
            settled = seen_settled(segmenter, options) if "duration" in limit else {}
            reports = list(running)
    for end in ends:
        end.send(None)
    late = max(end.recv() for end in ends)
    return {
        "plan": reports[0].plan,
        "slowest_read_seconds": round(late, 4),  # how long a camera has waited for a connection that is not drained
        "settled": settled,
        "streams": [
            {
                "frames": report.frames,
                "fps": round(report.frames / options.seconds, 2),
                "received": report.received,
                "dropped": report.dropped,
                "inferred": report.inferred,
                "latency": report.latency,
                "stages": report.stages,
            }
            for report in reports
        ],
    }


def seen_settled(session: Segmenter, options: argparse.Namespace) -> Figures:
    """Returns the figures of the streams from `settle` seconds on, looked at while they run."""
    begin = time.monotonic()
    looks: list[dict[str, tuple[StreamStatus, Histogram]]] = []
    for moment in (options.settle, options.seconds - END):
        time.sleep(max(0.0, begin + moment - time.monotonic()))
        looks.append({one.name: (one.status(), one.late) for one in session.streams.monitors})
    streams = []
    for name, (before, late) in looks[0].items():
        after, later = looks[1][name]
        within = dict(zip(BOUNDS, (b - a for a, b in zip(late.up_to, later.up_to, strict=True)), strict=True))
        streams.append(
            {
                "fps": after.fps,  # of the last 5 seconds
                "dropped": sum(after.dropped.values()) - sum(before.dropped.values()),
                "in_time": round(within[IN_TIME] / max(1, later.number - late.number), 4),
            }
        )
    return {"seconds": [options.settle, options.seconds - END], "in_time_seconds": IN_TIME, "streams": streams}


def row(count: int, figures: Figures) -> str:
    """Returns a line of the table: the worst stream counts."""
    streams = figures["streams"]
    lost = sum(n for stream in streams for cause, n in stream["dropped"].items() if cause != "end")
    worst = {name: max(stream["latency"][name] for stream in streams) for name in ("p50", "p95", "p99", "max")}
    latency = " | ".join(f"{1000 * seconds:.0f}" for seconds in worst.values())
    settled = figures["settled"]["streams"]
    late = f"{min(one['fps'] for one in settled):.1f} | {sum(one['dropped'] for one in settled)}"
    late += f" | {100 * min(one['in_time'] for one in settled):.0f} %"
    return f"| {count} | {min(stream['fps'] for stream in streams):.1f} | {lost} | {latency} | {late} |"


def live(options: argparse.Namespace) -> None:
    """Measures live streams."""
    results = circumstances("lab/experiments/streams.py", sys.argv[1:])
    results["counts"] = {}
    print(f"| streams | least fps | dropped | p50, ms | p95 | p99 | max | settled: fps | dropped | {IN_TIME} s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for count in options.streams:
            figures = measure(options, count, Path(folder))
            results["counts"][str(count)] = figures
            print(row(count, figures), flush=True)
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def experiments(options: argparse.Namespace) -> None:
    """Measures the grid of trackers, intervals and networks. What is measured stays if the program is stopped."""
    about = circumstances("lab/experiments/streams.py", sys.argv[1:])
    for figures in stream_experiments.measure(options):
        results = about | figures
        options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(stream_report.markdown([results]))


def report(options: argparse.Namespace) -> None:
    """Prints one table of all results, and makes a page."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in options.results]
    print(stream_report.markdown(results))
    if options.output is not None:
        options.output.write_text(stream_report.page(results), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures many streams at once.")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("live", help="cameras in real time")
    one.set_defaults(do=live)
    one.add_argument("--streams", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2])
    one.add_argument("--size", type=lambda text: tuple(map(int, text.split("x"))), default=(640, 360), metavar="WxH")
    one.add_argument("--fps", type=int, default=25)
    one.add_argument("--processes", type=int, default=1, help="that share the streams (default: 1)")
    one.add_argument("--seconds", type=float, default=20.0)
    one.add_argument("--settle", type=float, default=8.0, help="seconds until the streams have settled (default: 8)")
    one.add_argument("--model", default="person")
    one.add_argument("--models", type=Path, help="folder of the two networks of faces, which look at people then")
    one.add_argument("--track")
    one.add_argument("--anonymize", help="as the program takes it")
    one.add_argument("--decode", help="as the program takes it: live or live-nvdec")
    one.add_argument("--batch-size", type=int, help="as the program takes it")
    one.add_argument("--encode", help="as the program takes it")
    one.add_argument("--no-video", dest="video", action="store_false", help="results and saved masks alone")
    one.add_argument("--interval", type=lambda text: text if text == "auto" else int(text), default=0)
    one.add_argument("--max-interval", type=int, default=3)
    one.add_argument("--max-delay", type=float, default=0.5)
    one.add_argument("--low-delay", action="store_true")
    one.add_argument("-o", "--output", type=Path, default=RESULTS / "streams.json")
    one = commands.add_parser("experiments", help="trackers, intervals and networks, as fast as they go")
    one.set_defaults(do=experiments)
    stream_experiments.add_options(one, RESULTS)
    one = commands.add_parser("report", help="one table and one page of several results")
    one.set_defaults(do=report)
    one.add_argument("results", type=Path, nargs="+", help="what `experiments` has written")
    one.add_argument("-o", "--output", type=Path, help="an .html file")
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
