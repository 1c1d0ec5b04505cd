"""The report of a run."""

from dataclasses import dataclass, field

from segmentation.pipeline.verification.verify import Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One run in figures, as `--json` prints it."""

    input: str
    output: str | None  # `None` without a video
    also: tuple[str, ...]  # the further outputs
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)  # files of each output that is cut, in their order
    frames: int
    damaged: int  # frames of the input that were lost or are known to be broken
    # Packets by the number of their stream in the input: those that got a time between their neighbors', as theirs was
    # wrong, and those of sound, subtitles and data that are damaged.
    retimed: dict[int, int] = field(default_factory=dict)
    left_out: dict[int, int] = field(default_factory=dict)
    late: dict[int, str] = field(default_factory=dict)  # streams of the input in no output, as they begin on the way
    inferred: int  # frames that the network has seen; with saved masks 0
    found: int = 0  # frames in which something was found, see `FoundSink`
    unknown: int = 0  # frames for which the network returned no numbers: the effect covers all of each
    received: int  # frames of the input that arrived: `frames` and the sum of `dropped`
    dropped: dict[str, int] = field(default_factory=dict)  # cause to frames; only live sources drop any
    reconnects: int = 0  # of a live source
    repeated: int = 0  # frames of the output that did not arrive: they were shown while a live source was lost
    unsent: int = 0  # frames, or lines of results, that an address did not get while it was lost, each address counted
    latency: dict[str, float] = field(default_factory=dict)  # of a live source, in seconds: p50, p95, p99 and max
    doubtful: int = 0  # spans that a person should look at, with `anonymize`, see `audit`
    counts: dict[str, dict[str, int]] = field(default_factory=dict)  # of `count`, by line or zone
    complete: bool = True  # whether the output has all that was asked for, but for at most 1 % of its frames
    seconds: float  # of the whole run
    fps: float
    plan: dict[str, str]  # stage to implementation
    stages: dict[str, float]  # seconds that a stage's threads were busy, or the GPU with the work that the stage queued
    workers: dict[str, float] = field(default_factory=dict)  # with `--workers`: frames a second of each
    pieces: int = 0  # that the video was cut into, with `--workers`
    redone: int = 0  # pieces that were begun again by another worker
    verified: Verified | None = None  # the main output, with `Config.verify`
