"""The experiments with many streams: a small grid is measured, and results of several machines become one page."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, SAMPLE
from program import run_tool

sys.path.insert(0, str(ROOT / "tools" / "lab" / "report"))  # the tools are programs, not a package
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
sys.path.insert(0, str(ROOT / "tools" / "lab" / "experiments"))

import stream_report
from stream_experiments import rates_together


def result(date: str, gpu: str | None, *fps: float, video: str = "a.mp4") -> dict[str, Any]:
    """A result whose rows are those of intervals 0, 1 and so on."""
    runs = [{"cpu_seconds_per_1000_frames": 2.0}]
    rows = [
        {"networks": "people", "track": "fast", "streams": 16, "interval": i, "fps": one, "runs": runs}
        for i, one in enumerate(fps)
    ]
    errors = {str(i): {"iou": 1 - i / 100, "worst": 1 - i / 10, "f": 1 - i / 50} for i in range(len(fps))}
    of = {"video": video, "size": "1920x1080", "model": "person"}
    hardware = {"cpu": "A CPU", "cores": 8}
    head = {"date": date, "command": f"python tools/lab/experiments/streams.py {date}", "hardware": hardware}
    return head | {"gpu": gpu, "of": of, "errors": errors, "rows": rows}


def test_machines_share_a_table_and_newer_rows_replace_older_ones() -> None:
    results = [
        result("2026-01-02", None, 7.0),
        result("2026-01-01", None, 5.0, 6.0),
        result("2026-01-03", "H200", 90.0),
    ]
    rows = list(stream_report.table(results))
    assert [(row[0], row[4], row[5]) for row in rows] == [
        ("A CPU, 8 cores", "0", "7.0"),
        ("A CPU, 8 cores", "1", "6.0"),
        ("H200", "0", "90.0"),
    ]
    assert rows[1][6:] == ("", "2.0", "0.990", "0.90", "0.980")
    assert len(stream_report.markdown(results).splitlines()) == 2 + len(rows)


def test_processes_are_machines_of_their_own_and_limits_show() -> None:
    one, two = result("2026-01-01", "H200", 90.0), result("2026-01-02", "H200", 120.0)
    two |= {"processes": 2, "nvdec_limit": 2000.0}
    two["rows"][0]["runs"][0]["fps_of_all_the_run"] = 110.0
    rows = list(stream_report.table([one, two]))
    assert [(row[0], row[5], row[6]) for row in rows] == [("H200", "90.0", ""), ("H200, 2 processes", "120.0", "0.88")]


def test_a_machine_without_intervals_has_a_page_too() -> None:
    text = stream_report.page([result("2026-01-01", "H200", 90.0), result("2026-01-02", None, 5.0, 6.0)])
    assert text.count("<svg") == 4 and "H200" in text


def test_results_of_different_videos_are_refused() -> None:
    results = [result("2026-01-01", None, 5.0), result("2026-01-01", None, 5.0, video="b.mp4")]
    with pytest.raises(SystemExit, match=r"do not compare.*a\.mp4, 1920x1080, person; b\.mp4"):
        stream_report.markdown(results)


def test_rates_are_those_while_all_streams_are_under_way() -> None:
    """The first stream is fast while it is alone, the other one after the first has ended."""
    first = [(10, 1.0), (50, 2.0), (70, 4.0)]
    second = [(16, 2.0), (36, 4.0), (136, 5.0)]
    assert rates_together([first, second]) == [10, 10]
    with pytest.raises(SystemExit, match="take more --frames"):
        rates_together([first, [(16, 5.0), (32, 6.0)]])


@pytest.mark.slow
def test_a_small_grid_is_measured_and_shown(tmp_path: Path) -> None:
    made, page = tmp_path / "a.json", tmp_path / "page.html"
    small = ["--streams", "2", "--intervals", "3", "--trackers", "none", "--size", "320x180", "--frames", "24"]
    program = "tools/lab/experiments/streams.py"
    printed = run_tool(program, "experiments", SAMPLE, *small, "--seconds", "0.5", "--peers", "-o", made)
    found = json.loads(made.read_text())
    assert [row["peer"] for row in found["peers"]] == ["a process for each", "a loop of OpenCV's in a thread for each"]
    assert all(row["fps"] > 0 and row["peer"] in printed for row in found["peers"])
    assert [(row["streams"], row["interval"]) for row in found["rows"]] == [(2, 3)]
    assert all(row["fps"] >= row["runs"][0]["least"] > 0 for row in found["rows"])
    assert found["rows"][0]["runs"][0]["share_inferred"] == pytest.approx(0.33, abs=0.05)
    assert found["errors"]["0"]["iou"] == 1 and 0.5 < found["errors"]["3"]["worst"] <= found["errors"]["3"]["iou"] <= 1
    assert run_tool(program, "report", made, "-o", page) == printed
    text = page.read_text()
    assert text.count("<svg") == 2 and "2 streams" in text and printed.splitlines()[-3].split(" | ")[5] in text
