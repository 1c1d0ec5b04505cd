"""Every option, once. The command line and `segment()` both build a `Config`, which checks itself on creation."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, get_args

from segmentation.errors import ConfigError, did_you_mean
from segmentation.options.anonymize import BODIES, COVERS, LOOK_AHEAD, REGIONS, Anonymize, Region, reversible
from segmentation.options.devices import DEVICES, PROCESSORS, is_device
from segmentation.options.effect import CHOICES, DEFAULT_EFFECT, Effect, Unasked, number
from segmentation.options.instances import CountPlace, Keep, Pick
from segmentation.options.keywords import (
    Activation,
    Allowed,
    ChannelOrder,
    Codec,
    Format,
    Interval,
    Mode,
    Network,
    OnLoss,
    Quality,
    ResultsFormat,
    Track,
)
from segmentation.options.model_types import SEGMENTATION, TASKS, TYPES
from segmentation.options.review import Named
from segmentation.options.table import Of, Option, option, rows_of
from segmentation.options.then import parse_all
from segmentation.system.access import MAX_DELAY, MAX_PIXELS, STALL

STAGES = ("decode", "preprocess", "infer", "postprocess", "encode")
DEFAULT_SMOOTH = 0.5
LONGEST_INTERVAL = 30  # frames that wait in memory, and masks are poor long before
SURE_COVER = 0.3  # the highest threshold of masks of people that are to be covered: rather too much than too little
_FARTHEST = 1_000_000  # of means and deviations: beyond, pictures would overflow float16 or float32
_DAY = 86_400  # seconds
_LONGEST = 1_000_000_000  # seconds, 30 years: times beyond overflow the clocks of containers
# By codec, best to worst: constant rate factors, but for mjpeg JPEG's own quality.
QUALITY = {"h264": (0, 51), "hevc": (0, 51), "av1": (0, 63), "ffv1": (0, 0), "mjpeg": (100, 1), "vp9": (0, 63)}
QUALITY |= {"jpeg": (100, 1), "webp": (100, 1)}  # of pictures
_X26X = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo")
PRESETS = {"h264": _X26X, "hevc": _X26X, "av1": tuple(map(str, range(14))), "ffv1": (), "mjpeg": ()}
UNCOMPRESSED = ("y4m", "rawvideo")  # formats without a codec
_PRESETS = tuple(dict.fromkeys(name for names in PRESETS.values() for name in names))
NVENC_PRESETS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Holds the options of one run, checked.

    Times are in seconds, sizes of effects in pixels of a picture whose shorter side has 1080. `None` lets the program
    choose. `model` may also be a function that takes pictures, a NumPy array (N, 3, H, W) float32, and returns scores
    (N, h, w) or (N, C, h, w). Each field is a row of the table of options, see `segmentation.options.table`: with its
    group, default, meaning and range. `segmentation.options.keywords` has the same names and types for keywords.

    Raises `ConfigError` if a value is of another type, out of range, or contradicts another.
    """

    # Rows of a table, which a formatter would make ten lines each.
    # fmt: off
    effect: str = option("effect and mask", DEFAULT_EFFECT,
        f"the change of the background: {CHOICES}; sizes in pixels of a 1080-line picture", by_default="blur:25",
        metavar="EFFECT", everyday=True, of=Of.RUN | Of.PICTURE, link="effects.md")
    also: Sequence[tuple[str, str | Path]] = option("effect and mask", (),
        "another output of the same run, such as mask:mask.mkv", metavar="EFFECT:FILE", repeatable=True, everyday=True,
        of=Of.RUN | Of.OUTPUT | Of.SHOWING, link="output.md#several-outputs")
    invert: bool = option("effect and mask", False, "apply the effect to the people, and keep the rest", everyday=True,
        of=Of.RUN | Of.PICTURE)
    anonymize: str | None = option("effect and mask", None,
        "cover these, in black unless --effect is a color, image or video",
        metavar="faces|heads|people|plates=FILE,...", everyday=True)
    region: tuple[str, ...] = option("effect and mask", (),
        "cover this rectangle or polygon too, or alone, in pixels of the upright picture, or all in percent, 50%",
        metavar="X,Y,W,H[@FROM-TO]|X,Y,X,Y,X,Y,...", repeatable=True, everyday=True, link="anonymize.md#regions")
    except_: tuple[str, ...] = option("effect and mask", (),
        "with --anonymize: don't cover these, by their ids or who is at this point (as of --pick) of the picture then",
        flags=("--except",), metavar="id:N,...|at X,Y@TIME", repeatable=True, of=Of.RUN,
        link="anonymize.md#who-stays")
    only: tuple[str, ...] = option("effect and mask", (), "with --anonymize: cover these alone", by_default="all",
        metavar="id:N,...|at X,Y@TIME", repeatable=True, of=Of.RUN, link="anonymize.md#who-stays")
    review: str | Path | None = option("effect and mask", None,
        "with --anonymize: a text of corrections, a line each, as --audit proposes them", metavar="FILE", of=Of.RUN,
        link="anonymize.md#how-to-check")
    keep_metadata: bool = option("effect and mask", False,
        "with --anonymize: keep titles, places, chapters, subtitles, cover pictures and data", of=Of.RUN | Of.VIDEO)
    threshold: float = option("effect and mask", 0.5, "value of the mask where the edge lies; lower keeps more",
        above=0, below=1, metavar="T", of=Of.RUN | Of.PICTURE, link="masks.md#threshold")
    feather: float = option("effect and mask", 0.0,
        "width of the soft edge, from 10 to 90 %, in pixels of a 1080-line picture", unit="pixels", low=0, high=500,
        zero="a sharp edge", metavar="PX", everyday=True, of=Of.RUN | Of.PICTURE | Of.SHOWING, link="masks.md#feather")
    classes: tuple[str, ...] | None = option("effect and mask", None, "labels of the model to keep, such as person,cat",
        by_default="person if the model has it, else all", metavar="NAME,...", everyday=True, of=Of.NETWORK)
    smooth: float | None = option("effect and mask", None, "strength of the smoothing of the masks over time", low=0,
        high=1, zero="off", by_default="0.5; 0 for saved masks and with --low-delay", metavar="S",
        of=Of.RUN | Of.FRAMES | Of.VIDEO, link="masks.md#smoothing")
    interval: Interval = option("effect and mask", 0,
        "frames between two that the network sees, whose masks are propagated; auto: as the picture changes, up to "
        "7", unit="frames", low=0, high=LONGEST_INTERVAL, zero="every frame", metavar="N|auto",
        of=Of.RUN | Of.FRAMES | Of.NETWORK | Of.VIDEO | Of.SHOWING, link="masks.md#an-interval-between-inferences")
    refine: bool = option("effect and mask", True, "draw the edge of the mask along the edge of the picture",
        of=Of.RUN | Of.FRAMES | Of.PICTURE, link="masks.md#refinement")
    masks: str | Path | None = option("model", None,
        "masks that --save-masks wrote for this input, in place of a network", metavar="FILE.mkv|FOLDER",
        of=Of.RUN | Of.SHOWING, link="output.md#saved-masks")
    project: str | Path | None = option("effect and mask", None,
        "correct the masks as drawn on the page of segmentation serve, with the options stored along",
        metavar="FILE.json", of=Of.SHOWING, link="serve.md#corrections")
    track: Track | None = option("tracking", None,
        "tell people apart and give them ids: by overlap, also by motion, also by colors",
        by_default="balanced where another option needs ids, else none", of=Of.RUN | Of.FRAMES)
    keep: str | None = option("tracking", None, "keep these people alone", by_default="all",
        metavar="id:N,...|largest|nearest|first", everyday=True, of=Of.RUN | Of.FRAMES | Of.SHOWING)
    pick: str | None = option("tracking", None,
        "keep the person at this point of the upright picture then, before and after too, in pixels or percent, 50%",
        by_default="all", metavar="X,Y@TIME", everyday=True, of=Of.RUN | Of.SHOWING)
    count: tuple[str, ...] = option("tracking", (),
        "count people over a line or in a zone, in pixels of the upright picture, or all in percent, 50%",
        metavar="line:X1,Y1,X2,Y2|zone:X1,Y1,...", repeatable=True, everyday=True, of=Of.RUN)
    model: str | Path | Network = option("model", "person", "the network; built in: person, person-hq, person-best",
        metavar="NAME|FILE.onnx|FILE.engine", everyday=True, of=Of.NETWORK, link="models.md")
    labels: tuple[str, ...] | None = option("model", None, "names of the output channels, one each",
        by_default="the model's", metavar="NAME,...", of=Of.MEANING)
    mean: tuple[float, ...] | None = option("model", None, "subtracted from red, green and blue in 0..1",
        low=-_FARTHEST, high=_FARTHEST, by_default="the model's, else 0", metavar="R,G,B", of=Of.MEANING)
    std: tuple[float, ...] | None = option("model", None, "divides the difference to the mean", low=1 / _FARTHEST,
        high=_FARTHEST, by_default="the model's, else 1", metavar="R,G,B", of=Of.MEANING)
    channel_order: ChannelOrder | None = option("model", None, "order of the channels of the input",
        by_default="the model's, else rgb", of=Of.MEANING)
    input_size: tuple[int, int] | None = option("model", None,
        "height and width of the input of a model with a dynamic size", unit="pixels each", low=8, high=8192,
        by_default="the model's, of several the nearest to the video's shape, else 512x512", metavar="HxW",
        of=Of.MEANING)
    activation: Activation | None = option("model", None, "function that is still to be applied to the output",
        by_default="the model's, else by the range of the output", of=Of.MEANING)
    model_type: str | None = option("model", None, "type that supplies the meaning which the file does not state",
        choices=tuple(TYPES), by_default="as the inputs and outputs look", of=Of.MEANING)
    task: str | None = option("model", None, "content of the outputs: masks of classes, or a layout of instances",
        choices=(SEGMENTATION, *TASKS), by_default="the model's, else as the outputs look", of=Of.MEANING,
        link="models.md#instance-segmentation")
    model_output: str | None = option("model", None, "the output that is the mask",
        by_default="the first that can be one", metavar="NAME", of=Of.MEANING)
    model_inputs: tuple[str, ...] = option("model", (),
        "value of another input, or values with commas between, such as downsample_ratio=0.25",
        by_default="the model's", flags=("--model-input",), metavar="NAME=VALUE", repeatable=True, of=Of.MEANING)
    then: tuple[str, ...] = option("model", (),
        "a further network on each instance of LABEL, such as face=face.onnx@person", metavar="NAME=FILE.onnx@LABEL",
        repeatable=True, of=Of.SHOWING, link="models.md#several-networks-in-one-pass")
    start: float = option("input", 0.0, "time of the first frame, from the beginning of the video", unit="seconds",
        low=0, high=_LONGEST, metavar="TIME", everyday=True, of=Of.RUN | Of.FRAMES | Of.VIDEO)
    keep_start: bool = option("input", False, "begin the output at the time of the input's clock, not at 0", of=Of.RUN,
        link="output.md#times")
    duration: float | None = option("input", None, "length of the stretch", unit="seconds", above=0, high=_LONGEST,
        by_default="to the end", metavar="TIME", everyday=True, of=Of.RUN | Of.FRAMES | Of.VIDEO)
    max_frames: int | None = option("input", None, "stop after so many frames", unit="frames", low=1, by_default="all",
        metavar="N", of=Of.RUN | Of.FRAMES | Of.VIDEO)
    strict: bool = option("input", False, "fail if frames of the input are damaged or missing", everyday=True,
        of=Of.RUN | Of.FRAMES)
    allow: tuple[str, ...] = option("input", (),
        "let the input name other files or addresses (playlists), let it lead to private addresses (private)",
        choices=get_args(Allowed), metavar="NAME,...", of=Of.RUN | Of.FRAMES, link="security.md#inputs")
    max_pixels: int = option("input", MAX_PIXELS, "refuse larger frames, of the effect's file too", unit="pixels",
        low=1, high=MAX_PIXELS, metavar="N", of=Of.RUN | Of.FRAMES)
    max_duration: float | None = option("input", None, "refuse longer inputs", unit="seconds", above=0, high=_LONGEST,
        by_default="any length", metavar="TIME", of=Of.RUN | Of.FRAMES, link="security.md#limits")
    max_delay: float = option("live sources", MAX_DELAY, "drop frames that have waited longer for the pipeline",
        unit="seconds", above=0, high=_DAY, metavar="TIME", of=Of.RUN | Of.FRAMES)
    max_interval: int = option("live sources", 3,
        "frames between two that the network sees while the stages are too slow, before frames are dropped",
        unit="frames", low=0, high=LONGEST_INTERVAL, zero="never", metavar="N", of=Of.RUN | Of.FRAMES,
        link="live.md#overload")
    stall: float = option("live sources", STALL,
        "silence after which a source is lost, also while it is being connected", unit="seconds", low=0.1, high=_DAY,
        metavar="TIME", of=Of.RUN | Of.FRAMES)
    reconnect: str = option("live sources", "0.5..10",
        "first and longest pause in seconds between attempts to reconnect, each twice the one before; never: a "
        "loss ends the run", metavar="A..B|never", of=Of.RUN | Of.FRAMES)
    on_loss: OnLoss = option("live sources", "gap",
        "shown while a source is lost: nothing, the last picture with the effect everywhere, or a card that says so",
        of=Of.RUN, link="live.md#losses")
    low_delay: bool = option("live sources", False,
        "hold back no frame, with h264 and hevc: no smoothing unless --smooth says so, larger files", of=Of.RUN,
        link="live.md#low-delay")
    cut_every: float | None = option("live sources", None,
        "go on in a new file at the next keyframe; -o takes {name} and the fields of strftime then", unit="seconds",
        low=1, high=_DAY, by_default="one file", metavar="TIME", of=Of.RUN | Of.OUTPUT, link="live.md#outputs")
    codec: Codec | None = option("output", None, "codec of the video; mjpeg needs an NVIDIA GPU",
        by_default="h264; av1 in .webm; by the suffix for a cut-out", everyday=True, of=Of.RUN | Of.OUTPUT | Of.VIDEO)
    format: Format | None = option("output", None,
        "container of an output that is a pipe or a file object; y4m and rawvideo hold no sound",
        by_default="matroska; of a named pipe by its suffix", of=Of.RUN | Of.OUTPUT, link="pipes.md")
    quality: Quality | None = option("output", None,
        "rate factor, lower is better: h264 and hevc 0 to 51, av1 0 to 63; pictures and mjpeg 1 to 100, higher is "
        "better; high: h264 16, hevc 11, av1 8, mjpeg 95, pictures 97; on NVENC 19, 23, 22",
        by_default="h264 25, hevc 18, av1 21, for files about as large as the input; mjpeg 90, pictures 92; on "
        "NVENC h264 26, hevc 30, av1 32", metavar="N|high", everyday=True, of=Of.RUN | Of.OUTPUT)
    preset: str | None = option("output", None,
        "speed against size: h264 and hevc ultrafast to placebo, av1 0 to 13, NVENC p1 to p7", words=_PRESETS,
        by_default="h264 superfast, hevc fast, av1 8, NVENC p5", metavar="NAME", of=Of.RUN | Of.OUTPUT | Of.VIDEO)
    video: bool = option("output", True, "write no video, but --results, --save-masks and --count alone",
        by_default="a video", flags=("--no-video",), everyday=True, of=Of.RUN, link="output.md#without-a-video")
    overwrite: bool = option("command", False, "replace files that exist", flags=("-y", "--overwrite"), everyday=True,
        of=Of.RUN)
    verify: bool = option("output", False, "check the output afterwards, against the input", everyday=True,
        of=Of.RUN | Of.OUTPUT, link="output.md#verification")
    mute: bool = option("output", False, "leave out the sound: voices are recognized too", of=Of.RUN)
    pitch_shift: float | None = option("output", None,
        "move the pitch of all sound, whose length stays: voices are harder to recognize", unit="semitones", low=-12,
        high=12, metavar="SEMITONES", of=Of.RUN | Of.OUTPUT, link="anonymize.md#what-is-promised")
    results: str | Path | TextIO | None = option("output", None,
        "also write the classes, areas and boxes of each frame as JSON lines, or post them to an http(s) address",
        metavar="FILE|FOLDER|ADDRESS", everyday=True, of=Of.RUN, link="output.md#results")
    results_format: ResultsFormat = option("output", "lines",
        "format of the results: JSON lines, or instances as other tools read them, which implies --track", of=Of.RUN,
        link="output.md#instances")
    audit: str | Path | None = option("output", None,
        "with --anonymize: also write what is covered, the doubtful spans first, with pictures of the output",
        metavar="FILE.html|FILE.json|FOLDER", of=Of.RUN | Of.OUTPUT, link="anonymize.md#how-to-check")
    rle: bool = option("output", False, "add the masks to the results, as COCO's run lengths", of=Of.RUN)
    save_masks: str | Path | None = option("output", None,
        "also write the masks before refinement as a video, for --masks", metavar="FILE.mkv|FOLDER",
        of=Of.RUN | Of.NETWORK, link="output.md#saved-masks")
    trace: str | Path | None = option("command", None, "write the times of all work as a JSON for ui.perfetto.dev",
        metavar="FILE", of=Of.RUN)
    mode: Mode = option("stages and device", "auto", "the plain stages; those on a GPU, or fail",
        by_default="the first that can run", flags=("--baseline", "--optimized"))
    device: str | None = option("stages and device", None, f"processor of the stages or of the network: {DEVICES}",
        words=("auto", "cpu", "cuda:0", *PROCESSORS), by_default="auto, an NVIDIA GPU, else the CPU", metavar="NAME",
        everyday=True, link="options.md#other-processors")
    decode: str | None = option("stages and device", None, "implementation of the decoder",
        by_default="the first that can run", link="internals/architecture.md#stages", metavar="NAME")
    preprocess: str | None = option("stages and device", None, "implementation of the preprocessing",
        by_default="the first that can run", link="internals/architecture.md#stages", metavar="NAME", of=Of.NETWORK)
    infer: str | None = option("stages and device", None, "implementation of the inference",
        by_default="the first that can run", link="internals/architecture.md#stages", metavar="NAME", of=Of.NETWORK)
    postprocess: str | None = option("stages and device", None, "implementation of the postprocessing",
        by_default="the first that can run", link="internals/architecture.md#stages", metavar="NAME", of=Of.OUTPUT)
    encode: str | None = option("stages and device", None, "implementation of the encoder",
        by_default="the first that can run", link="internals/architecture.md#stages", metavar="NAME", of=Of.OUTPUT)
    batch_size: int | None = option("stages and device", None, "frames that are processed at a time", unit="frames",
        low=1, by_default="16 on a GPU, 4 there for live sources, 1 on the CPU", metavar="N")
    compile: bool = option("stages and device", False,
        "run the network through torch.compile, with torch-fp16 alone: slow to start, then faster")
    # fmt: on

    effects: tuple[Effect, ...] = field(init=False, repr=False, compare=False)
    """The effect of the output, and then those of `also`, as the options `effect` and `also` name them."""

    def __post_init__(self) -> None:
        for name, row in self._rows.items():  # before anybody can see the frozen object
            value = getattr(self, name)
            if value is not row.default:  # as most are, each time that a run replaces a few
                object.__setattr__(self, name, row.checked(value))
        self._check_video()  # first, since the others complete options
        self._apply_anonymize()
        texts = (self.effect, *(effect for effect, _ in self.also))
        object.__setattr__(self, "effects", tuple(map(Effect.parse, texts)))
        self._check_effects()
        self._check_format()
        self._check_jpeg()
        self._check_sound()
        self._check_live()
        self._check_codec()
        if self.device == "auto":
            object.__setattr__(self, "device", None)
        if self.device is not None and not is_device(self.device):
            raise ConfigError(f"device {self.device!r}: write {DEVICES}")
        if self.rle and self.results is None:
            raise ConfigError("rle: the masks go into the results; name a file for them with --results")
        self._check_instances()
        self._check_masks()
        self._check_model()

    def given(self, of: Of) -> list[Option]:
        """Returns the options of this kind that are not the default."""
        return [row for row in self._rows.values() if row.of & of and getattr(self, row.name) != row.default]

    @property
    def _rows(self) -> dict[str, Option]:
        table: type = type(self)  # else mypy takes the hash of instances for the one of the class
        return rows_of(table)

    @property
    def inputs_by_name(self) -> dict[str, tuple[float, ...]]:
        """Returns the values of `model_inputs` by the inputs' names. Raises `ConfigError`."""
        values = {}
        for text in self.model_inputs:
            name, _, listed = text.rpartition("=")
            if not name:
                raise ConfigError(f"model input {text!r}: write NAME=VALUE, such as downsample_ratio=0.25")
            values[name] = tuple(number(part, f"model input {text!r}") for part in listed.split(","))
        return values

    @property
    def model_name(self) -> str:
        """Returns the name of the model in messages: a file's, or that of a function."""
        if not callable(self.model):
            return str(self.model)
        return f"function {getattr(self.model, '__qualname__', type(self.model).__qualname__)}"

    @property
    def smoothing_strength(self) -> float:
        """Returns `smooth`, or its default: saved masks were smoothed when they were found, and smoothing waits."""
        by_default = 0.0 if self.masks is not None or self.low_delay or self._covers_hard else DEFAULT_SMOOTH
        return by_default if self.smooth is None else self.smooth

    @property
    def pauses(self) -> tuple[float, float] | None:
        """Returns the first and the longest pause of `reconnect`, `None` for `never`. Raises `ConfigError`."""
        if self.reconnect == "never":
            return None
        what = f"reconnect {self.reconnect!r}"
        first, separator, longest = self.reconnect.partition("..")
        if not separator:
            raise ConfigError(f"{what}: write FIRST..LONGEST in seconds, such as 0.5..10, or never")
        pauses = number(first, what), number(longest, what)
        if not 0 < pauses[0] <= pauses[1] <= _DAY:
            raise ConfigError(f"{what}: must rise, from above 0 to at most {_DAY} seconds")
        return pauses

    @property
    def tracker(self) -> Track | None:
        """Returns `track`, or its default: ids are found where an option needs them."""
        labels = any(effect.label for effect in self.effects)
        needed = (
            self.covers_boxes
            or self.then
            or self.keep
            or self.pick
            or self.count
            or labels
            or self.results_format != "lines"
        )
        return "balanced" if self.track is None and needed else self.track

    def misfit(self, codec: str) -> str | None:
        """Returns the reason why `codec` does not take the quality or the preset, or None if the codec takes both."""
        best, worst = QUALITY[codec]
        if isinstance(self.quality, int) and not min(best, worst) <= self.quality <= max(best, worst):
            return f"quality {self.quality}: {codec} takes {best} (best) to {worst}, or high"
        if self.quality == "high" and best == worst:
            return f"quality high: {codec} is always lossless; leave it out"
        nvenc = self.encode == "nvenc"
        known = NVENC_PRESETS if nvenc else PRESETS.get(codec, ())
        if self.preset is not None and self.preset not in known:
            choices = f"choose {', '.join(known)}{did_you_mean(self.preset, known)}" if known else f"{codec} has none"
            return f"preset {self.preset!r} is unknown for {'nvenc' if nvenc else codec}: {choices}"
        return None

    @property
    def covers_boxes(self) -> bool:
        """Returns whether boxes are covered that are followed over time."""
        return self._covers_hard and self.anonymize != REGIONS

    @property
    def covered(self) -> tuple[Anonymize, ...]:
        """Returns the kinds of `anonymize`, of which the first has the run's network."""
        return () if self.anonymize is None else Anonymize.parse_all(self.anonymize)

    @property
    def further(self) -> tuple[Anonymize, ...]:
        """Returns the kinds whose networks see each frame too: the other ones, and bodies where heads are wanted."""
        kinds = {one.kind for one in self.covered}
        wants_bodies = "heads" in kinds or ("faces" in kinds and self.audit is not None)
        return (*self.covered[1:], *([Anonymize(BODIES, "person")] if wants_bodies else []))

    @property
    def live_look_ahead(self) -> float:
        """Returns how long frames of a live source wait for later ones, which show who is to be covered: seconds."""
        return min(LOOK_AHEAD, self.max_delay) if self.covers_boxes else 0.0

    @property
    def _covers_hard(self) -> bool:
        """Whether masks have no soft edges, which masks of people have."""
        return self.anonymize is not None and self.covered[0].kind != "people"

    @property
    def _cutout(self) -> bool:
        return self.effects[0].kind == "cutout"

    def _apply_anonymize(self) -> None:
        """Sets the options that `anonymize` stands for. Refuses those that would show what it covers."""
        for region in self.region:
            Region.parse(region)
        if self.anonymize is None and self.region:
            object.__setattr__(self, "anonymize", REGIONS)
            object.__setattr__(self, "labels", (REGIONS,))
        if self.anonymize is None:
            if self.audit is not None:
                raise ConfigError("audit: reports what --anonymize covers; add --anonymize faces")
            if self.keep_metadata:
                raise ConfigError("keep metadata: all of it is kept anyway; it is an option of --anonymize")
            for row in self._given_corrections():
                raise ConfigError(f"{row.title}: corrects what --anonymize covers; add --anonymize faces")
            return
        if self.anonymize == REGIONS and not self.region:
            raise ConfigError("anonymize regions: name the places with --region")
        wanted = Anonymize.parse_all(self.anonymize)[0]
        for row in self.given(Of.SHOWING):
            raise ConfigError(f"anonymize: leave out {row.flag}, which may show what is to be covered")
        if self.model not in ("person", wanted.model):
            raise ConfigError(f"anonymize {self.anonymize}: names its network itself; leave out --model")
        effect = Effect.parse("color:#000000" if isinstance(self.effect, Unasked) else self.effect)
        if effect.kind not in COVERS or effect.label:
            raise reversible(effect.text)
        chosen: dict[str, object] = {"model": wanted.model, "effect": effect.text, "invert": True, "refine": False}
        if self.audit is not None and not self.covers_boxes:
            raise ConfigError(f"audit: lists boxes, of which anonymize {self.anonymize} has none; leave out --audit")
        self._check_corrections()
        if not self._covers_hard:
            chosen["threshold"] = min(self.threshold, SURE_COVER)
        for name, value in chosen.items():
            object.__setattr__(self, name, value)

    def _given_corrections(self) -> list[Option]:
        return [
            row for name in ("except_", "only", "review") if getattr(self, name) != (row := self._rows[name]).default
        ]

    def _check_corrections(self) -> None:
        """Refuses ids where nothing has any, and those that contradict each other."""
        for text in (*self.except_, *self.only):
            Named.parse(text)
        for row in self._given_corrections():
            if row.name != "review" and not self.covers_boxes:
                raise ConfigError(f"{row.title}: chooses boxes, of which anonymize {self.anonymize} has none")
        if self.except_ and self.only:
            raise ConfigError("except: --only says already who is covered; leave out one of them")

    def _check_effects(self) -> None:
        if self.encode == "pictures":
            raise ConfigError("encode pictures: follows from the output's suffix, such as .gif; leave out --encode")
        if self._cutout:
            self._check_cutout()
        elif self.encode == "cutout":
            raise ConfigError(f"encode cutout: encodes the effect cutout only, not {self.effect}")

    def _check_cutout(self) -> None:
        """Refuses options that an output with alpha decides itself or can't have."""
        if self.codec is not None:
            raise ConfigError(f"codec {self.codec!r}: a cutout's follows from its output's suffix; leave out --codec")
        if self.preset is not None:
            raise ConfigError(f"preset {self.preset!r}: the codecs of cutouts have none; leave out --preset")
        if self.encode not in (None, "cutout"):
            raise ConfigError(f"encode {self.encode!r}: can't encode alpha; leave out --encode")
        if self.verify:
            raise ConfigError("verify: can't check a cutout, whose layout is not the input's; leave out --verify")

    def _check_format(self) -> None:
        """Refuses options that say how uncompressed video is to be compressed."""
        if self.format in UNCOMPRESSED:
            for name in ("codec", "quality", "preset"):
                if (value := getattr(self, name)) is not None:
                    raise ConfigError(f"{name} {value!r}: {self.format} is not compressed; leave out --{name}")

    def _check_jpeg(self) -> None:
        """Completes or refuses the pair of codec and encoder: the GPU's JPEG encoder is the only one of its codec."""
        if self.codec == "mjpeg" and self.encode is None:
            object.__setattr__(self, "encode", "jpeg")
        elif self.codec is None and self.encode == "jpeg":
            object.__setattr__(self, "codec", "mjpeg")
        elif self.codec == "mjpeg" and self.encode != "jpeg":
            raise ConfigError(f"encode {self.encode!r}: mjpeg is made by --encode jpeg only")
        elif self.codec != "mjpeg" and self.encode == "jpeg":
            raise ConfigError(f"codec {self.codec!r}: --encode jpeg makes mjpeg only")
        if self.codec == "mjpeg" and self.verify:
            raise ConfigError("verify: can't check mjpeg, whose colors and layout are JPEG's own; leave out --verify")

    def _check_sound(self) -> None:
        if self.pitch_shift is not None and self.mute:
            raise ConfigError("pitch shift: --mute leaves the sound out; leave out one of them")

    def _check_live(self) -> None:
        if self.low_delay and self.codec not in (None, "h264", "hevc"):
            raise ConfigError(f"low delay: {self.codec} holds back frames; use h264 or hevc, or leave out --low-delay")
        self.pauses  # noqa: B018  # raises

    def _check_codec(self) -> None:
        """Refuses a quality or a preset that fits no codec which the output may get."""
        by_suffix = ("vp9", "webp") if self._cutout else ("h264", "av1", "webp")
        codecs = (self.codec,) if self.codec else by_suffix
        fault = self.misfit(codecs[0])
        if fault is not None and all(map(self.misfit, codecs)):
            raise ConfigError(fault)

    def _check_instances(self) -> None:
        if self.results_format != "lines" and self.results is None:
            raise ConfigError(f"results format {self.results_format}: name a file for the results with --results")
        if self.keep is not None:
            Keep.parse(self.keep)
        if self.pick is not None:
            Pick.parse(self.pick)
            if self.keep is not None:
                raise ConfigError(f"pick {self.pick}: says who is kept, as does --keep {self.keep}; leave out one")
        for place in self.count:
            CountPlace.parse(place)
        parse_all(self.then)

    def _check_masks(self) -> None:
        """Refuses the options of stages that saved masks replace."""
        if self.masks is None:
            return
        if self.smooth:
            raise ConfigError("smooth: saved masks stay as smooth as they are; leave out --smooth, or --masks")
        for row in self.given(Of.NETWORK):
            raise ConfigError(f"masks {self.masks}: the masks are found already; leave out {row.flag}, or --masks")

    def _check_video(self) -> None:
        """Refuses a run that would write nothing, and the options of the stages that a run without a video lacks."""
        if self.video:
            return
        for row in self.given(Of.OUTPUT):
            raise ConfigError(f"no video: {row.flag} is for videos; leave out {row.flag}, or --no-video")
        if self.results is None and self.save_masks is None and not self.count:
            raise ConfigError("no video: nothing would be written; add --results, --save-masks or --count")

    def _check_model(self) -> None:
        for name in ("model_type", "task", "model_output", "model_inputs"):
            if callable(self.model) and getattr(self, name):
                raise ConfigError(
                    f"{name.replace('_', ' ')}: {self.model_name} is a function, not a file; leave it out"
                )
        self.inputs_by_name  # noqa: B018  # raises
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != 3:
                raise ConfigError(f"{name} {values}: must be three numbers, for red, green and blue")


OPTIONS = rows_of(Config)


def with_batch_size(config: Config, frames: int) -> Config:
    """Returns the options with another batch size, one or more frames.

    Nothing is checked anew, since no check looks at the batch size beside another option.
    """
    if config.batch_size == frames:
        return config
    changed = copy(config)
    object.__setattr__(changed, "batch_size", frames)
    return changed
