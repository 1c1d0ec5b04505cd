"""Writes the report of a run that covers boxes: `--audit`. Its pictures are of the covered output alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from fractions import Fraction
from html import escape
from itertools import repeat
from math import floor
from pathlib import Path
from typing import TypeAlias

import av
import av.error
import cv2
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from segmentation._version import __version__
from segmentation.errors import ConfigError, OutputError, counted, one_line
from segmentation.frames import VideoInfo
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.options.config import Config
from segmentation.pipeline.report import Report
from segmentation.system.atomic_file import PendingFile
from segmentation.tracking.anonymize.doubts import DoubtFinder, DoubtfulSpan
from segmentation.tracking.anonymize.reviewed import Reviewed

Facts: TypeAlias = dict[str, object]  # as JSON
SUFFIXES = (".html", ".json")
_MOST = 200  # pictures of a page: a person looks at no more
_SIDE = 360  # pixels of a picture's longer side
_ROUNDED = 1e-3  # seconds: containers round times
_MARK = (255, 200, 0)
_UNSURE = {
    "appears": (0.5, 0.0),
    "vanishes": (0.0, 0.5),
    "gap": (0.0, 0.0),
    "bare": (0.0, 0.0),
}  # seconds to cover before and behind
_MEANING = {
    "appears": "comes into view amid the picture: is it uncovered before?",
    "vanishes": "is lost amid the picture: is it uncovered afterwards?",
    "gap": "was not found for a while: is the cover there, and where it should be?",
    "bare": "has no face that was found: is somebody to be recognized?",
    "weak": "was never found for certain: perhaps it is nothing",
}


class Audit(Sink):
    """Collects the covered things of a run. `complete` writes the file, once the output is there."""

    def __init__(self, seconds: Callable[[int], Fraction], info: VideoInfo, config: Config) -> None:
        """`seconds` returns when the output shows the frame of a pts. Raises `ConfigError` and `OutputError`."""
        self._seconds, self._info, self._config = seconds, info, config
        self._finder, self._decided = DoubtFinder(), Reviewed(config, info)
        self._doubts: list[DoubtfulSpan] = []
        self._reviewed: list[DoubtfulSpan] = []  # about which somebody has decided: they are no longer doubtful
        self._offset: float | None = None  # seconds from times of the output to those of the video, which options name
        self._file = None if config.audit is None else PendingFile(Path(config.audit), overwrite=config.overwrite)
        if self._file is not None:
            if self._file.target.suffix.lower() not in SUFFIXES:
                raise ConfigError(f"audit {self._file.target}: name a file that ends in {' or '.join(SUFFIXES)}")
            self._file.check("--audit")

    @property
    def doubtful(self) -> int:
        """Returns the number of doubtful spans."""
        return len(self._doubts)

    def write(self, batch: FinishedBatch) -> None:
        if self._offset is None:
            first = batch.frames.frames[0].pts
            self._offset = float(first * self._info.time_base - self._info.start - self._seconds(first))
        shots, bare = batch.shots or repeat(0), batch.bare or repeat(())
        for frame, found, shot, heads in zip(batch.frames.frames, batch.instances, shots, bare, strict=False):
            self._finder.add(float(self._seconds(frame.pts)), found, shot, heads)

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        for doubt in self._finder.doubts():
            reviewed = self._finder.is_left(doubt) or self._decided.decides(doubt, self._offset or 0.0)
            (self._reviewed if reviewed else self._doubts).append(doubt)

    def complete(self, report: Report) -> None:
        """Writes the file, with pictures of the output. Raises `OutputError`."""
        if self._file is None or report.output is None:
            return
        about, tracks = self._about(report, report.output), self._tracks()
        try:
            if self._file.target.suffix.lower() == ".json":
                doubtful = [_rounded(doubt) | {"correction": self._correction(doubt)} for doubt in self._doubts]
                spans = {"doubtful": doubtful, "reviewed": [*map(_rounded, self._reviewed)]}
                text = json.dumps(about | {"tracks": tracks} | spans, indent=1)
            else:
                doubts, reviewed = self._doubts[:_MOST], self._reviewed[:_MOST]
                pictures = self._pictures(Path(report.output), [*doubts, *reviewed])
                lines = [f"<code>{self._correction(doubt)}</code>" for doubt in doubts]
                shown = _figures(doubts, pictures, lines), _figures(reviewed, pictures, repeat("reviewed"))
                text = _page(about, tracks, len(self._doubts), *shown)
            with self._file as file:
                file.create()
                file.write(text.encode())
                file.commit()
        except (OSError, av.error.FFmpegError) as exc:
            raise OutputError(f"{self._file.target}: cannot be written ({one_line(exc)})") from exc

    def _about(self, report: Report, output: str) -> Facts:
        config = self._config
        settings = {one.name: (getattr(config, one.name), one.default) for one in fields(config) if one.init}
        return {
            "program": f"segmentation {__version__}",
            "input": {"file": report.input, "sha256": _digest(self._info.path)},
            "output": {"file": output, "sha256": _digest(output)},
            "settings": {name: _stated(value) for name, (value, usual) in settings.items() if value != usual},
            "stages": report.plan,
            "frames": report.frames,
            "frames_with_something_found": report.found,
            "complete": report.complete,
        }

    def _tracks(self) -> list[Facts]:
        return [
            {
                "id": id,
                "label": track.label,
                "begin": round(track.sights[0].time, 3),
                "end": round(track.sights[-1].time, 3),
                "frames": len(track.sights),
                "supposed": sum(not sight.found for sight in track.sights),
                "left": sum(not sight.one.kept for sight in track.sights),
                "best_score": round(track.best, 2),
            }
            for id, track in sorted(self._finder.tracks.items())
        ]

    def _correction(self, doubt: DoubtfulSpan) -> str:
        """Returns the line for `--review` that settles a doubt, see `Reviewed`.

        Its times are rounded away from the span, as a line ends before its second time.
        """
        if doubt.kind == "weak":
            return f"leave id:{doubt.id}"
        before, behind = _UNSURE[doubt.kind]
        offset = self._offset or 0.0
        begin = max(0, floor((doubt.begin + offset - before - _ROUNDED) * 100)) / 100
        end = (floor((doubt.end + offset + behind + _ROUNDED) * 100) + 1) / 100
        left, top, right, bottom = (min(1.0, max(0.0, side)) * 100 for side in doubt.box)
        return f"cover {left:.1f}%,{top:.1f}%,{right - left:.1f}%,{bottom - top:.1f}%@{begin:.2f}-{end:.2f}"

    def _pictures(self, video: Path, doubts: Sequence[DoubtfulSpan]) -> dict[DoubtfulSpan, str]:
        """Returns a small JPEG for each span, as text for a page: of the output, with a frame where to look."""
        made = dict.fromkeys(doubts, "")
        with av.open(str(video)) as container:
            stream = container.streams.video[0]
            for doubt in sorted(doubts, key=lambda one: one.look):
                container.seek(int(doubt.look * av.time_base))
                if (shown := _shown_at(container.decode(stream), doubt.look)) is not None:
                    made[doubt] = self._small(np.asarray(shown.to_ndarray(format="bgr24"), np.uint8), doubt)
        return made

    def _small(self, picture: NDArray[np.uint8], doubt: DoubtfulSpan) -> str:
        upright = self._info.orientation.upright(picture)
        scale = _SIDE / max(upright.shape[:2])
        small = cv2.resize(np.ascontiguousarray(upright), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        left, top, right, bottom = (round(s * n) for s, n in zip(doubt.box, small.shape[1::-1] * 2, strict=True))
        cv2.rectangle(small, (left, top), (right, bottom), _MARK, 1)
        return base64.b64encode(cv2.imencode(".jpg", small)[1].tobytes()).decode()


def _shown_at(frames: Iterable[VideoFrame], time: float) -> VideoFrame | None:
    """Returns the frame that is shown at a time in seconds, `None` without frames."""
    last = None
    for frame in frames:
        if last is not None and frame.time > time + _ROUNDED:
            break
        last = frame
    return last


def _digest(path: str) -> str:
    """Returns the SHA-256 of a file, in hexadecimal; "" of what is no file."""
    if not Path(path).is_file():
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stated(value: object) -> object:
    """Returns an option's value as JSON holds it: numbers, truth values, texts and lists of them; others as text."""
    if isinstance(value, (list, tuple)):
        return [_stated(one) for one in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _rounded(doubt: DoubtfulSpan) -> Facts:
    values = asdict(doubt) | {"box": [round(side, 4) for side in doubt.box]}
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}


def _figures(doubts: Sequence[DoubtfulSpan], pictures: Mapping[DoubtfulSpan, str], answers: Iterable[str]) -> str:
    """Returns spans as HTML, each with its picture and its answer below."""
    return "".join(
        f'<figure><img src="data:image/jpeg;base64,{pictures[doubt]}" alt=""><figcaption><b>{_clock(doubt.look)}</b> '
        f"{doubt.kind}: {_named(doubt)} {_MEANING[doubt.kind]}<br>{answer}</figcaption></figure>"
        for doubt, answer in zip(doubts, answers, strict=False)
    )


def _page(about: Facts, tracks: Sequence[Facts], doubts: int, spans: str, reviewed: str) -> str:
    """Returns the report as a page that needs no other file. `spans` and `reviewed` are HTML, `doubts` is a number."""
    rest = doubts - _MOST
    answered = reviewed and f"<h2>Reviewed</h2>\n<p>Doubtful without --review, --region and the like.</p>\n{reviewed}"
    more = f"<p>{rest} more spans are less doubtful; --audit FILE.json lists all.</p>" if rest > 0 else ""
    rows = "".join("<tr>" + "".join(f"<td>{escape(str(value))}" for value in one.values()) for one in tracks)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>What was covered</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{{font:15px sans-serif;margin:1em}}
figure{{display:inline-block;margin:.5em 1em .5em 0;width:{_SIDE}px;max-width:100%;vertical-align:top}}
img{{max-width:100%}}table{{display:block;overflow-x:auto}}
td,th{{padding:.1em .8em;text-align:right}}pre{{white-space:pre-wrap;overflow-wrap:anywhere}}</style>
<h1>{counted(doubts, "doubtful span")}, {counted(len(tracks), "track")}</h1>
<p>The pictures are of the output. Look at the place in the blue frame: is somebody to be recognized, or nothing there?
Write the lines that are right into a text file, and run again with --review and its name.
<code>cover X,Y,WIDTH,HEIGHT@FROM-TO</code> covers a place; of a head that is none, write <code>leave</code> in place of
<code>cover</code>. <code>leave id:N</code> covers number N no more.</p>
{spans}{more}{answered}<h2>Tracks</h2>
<p>Supposed: frames of it in which nothing was found, and the place is covered all the same. Left: frames in which it is
not covered, since somebody asked for that. Best score: how sure the network was at best, from 0 to 1.</p>
<table><tr><th>number<th>label<th>from, s<th>to, s<th>frames<th>supposed<th>left<th>best score{rows}
</table><h2>Run</h2><pre>{escape(json.dumps(about, indent=1))}</pre></html>
"""


def _named(doubt: DoubtfulSpan) -> str:
    return f"number {doubt.id}" if doubt.id else "a head"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}:{rest:05.2f}"
