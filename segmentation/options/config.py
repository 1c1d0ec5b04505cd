"""Every option, once. The command line and `segment()` both build a `Config`, which checks itself on creation."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TextIO, get_args

from segmentation.errors import ConfigError, did_you_mean
from segmentation.options.anonymize import COVERS, Anonymize
from segmentation.options.devices import DEVICES, is_device
from segmentation.options.effect import Effect, number
from segmentation.options.instances import Keep, Pick, Place
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
from segmentation.options.then import parse_all
from segmentation.options.value_types import fitted, option_type
from segmentation.system.access import MAX_DELAY, MAX_PIXELS, STALL

STAGES = ("decode", "preprocess", "infer", "postprocess", "encode")
DEFAULT_SMOOTH = 0.5
LONGEST_INTERVAL = 30  # frames that wait in memory, and masks are poor long before
SURE_COVER = 0.3  # the highest threshold of masks of people that are to be covered: rather too much than too little
_FARTHEST = 1e6  # of means and deviations: beyond, pictures would overflow float16 or float32
_LONGEST_WAIT = 86_400  # seconds: a day
_LONGEST = 1_000_000_000  # seconds, 30 years: times beyond overflow the clocks of containers
# By codec, best to worst: constant rate factors, but for mjpeg JPEG's own quality.
QUALITY = {"h264": (0, 51), "hevc": (0, 51), "av1": (0, 63), "ffv1": (0, 0), "mjpeg": (100, 1), "vp9": (0, 63)}
QUALITY |= {"jpeg": (100, 1), "webp": (100, 1)}  # of pictures
CODECS: tuple[str, ...] = get_args(Codec)  # to choose from; vp9 is for cut-outs only
_X26X = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo")
PRESETS = {"h264": _X26X, "hevc": _X26X, "av1": tuple(map(str, range(14))), "ffv1": (), "mjpeg": ()}
UNCOMPRESSED = ("y4m", "rawvideo")  # formats without a codec
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
# Options of what a run without a video lacks.
_OF_VIDEOS = ("also", "codec", "format", "quality", "preset", "encode", "postprocess", "verify", "cut_every")
NVENC_PRESETS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Holds the options of one run, checked.

    The options are grouped by their owner: effect and mask, model, stretch of the input, codec, outputs, stages and
    device. Times are in seconds, sizes of effects in pixels of a picture whose shorter side has 1080. `None` lets the
    program choose. `segmentation.options.keywords` has the same names and types for keyword arguments.

    Raises `ConfigError` if a value is of another type, out of range, or contradicts another.
    """

    # Effect and mask: `stages.postprocess`, `stages.masks`

    effect: str = "blur"
    """What is done to the background, as the command line has it: `blur[:STRENGTH]`, `pixelate[:SIZE]`,
    `color[:#RRGGBB|NAME]`, `image:FILE[,contain]`, `video:FILE[,contain]`, `cutout`, `mask` or
    `overlay[:#RRGGBB|NAME]`, with the color names of CSS.
    Default: `blur`, of strength 25."""

    also: Sequence[tuple[str, str | Path]] = ()
    """Further outputs of the same run, as pairs of an effect and a file. Default: none."""

    invert: bool = False
    """Apply the effect to the kept classes and keep the rest. Default: False."""

    anonymize: str | None = None
    """Cover `faces`, `people`, or `plates=FILE.onnx`, found by that network, with the effect: black unless `effect` is
    a color, an image or a video. What names people stays out of the output, see `keep_metadata`. Default: None."""

    keep_metadata: bool = False
    """With `anonymize`: keep titles, places, chapters, subtitles, cover pictures and data. Default: False."""

    mute: bool = False
    """Leave out the sound: voices are recognized too. Default: False."""

    threshold: float = 0.5
    """Value of the mask where the edge lies, between 0 and 1, both excluded. Lower keeps more. Default: 0.5."""

    feather: float = 0.0
    """Width of the soft edge from 10 to 90 %, in pixels of a picture whose shorter side has 1080: 0 to 500.
    Default: 0, a sharp edge."""

    smooth: float | None = None
    """Strength of the masks' smoothing over time, from 0 (each frame's own mask) to 1. Default: 0.5, and 0 for saved
    masks and with `low_delay`, see `smoothing_strength`."""

    interval: Interval = 0
    """Number of frames between two that the network sees, 0 to 30; their masks are propagated from both. `auto` decides
    by the picture, up to 7. Default: 0, the network sees every frame."""

    refine: bool = True
    """Draw the mask's edge along the picture's edge. Default: True."""

    masks: str | Path | None = None
    """A file that `save_masks` has written of the same input, used in place of the network. Default: None."""

    # Who is who: `stages.tracking`

    track: Track | None = None
    """Tell people, or instances of other classes, apart and give each an id: `fast` by overlap alone, `balanced` by
    motion too, `accurate` by motion and colors. Default: `balanced` if another option needs ids, else none."""

    keep: str | None = None
    """Instances that are kept: `id:3,7`, `largest`, `nearest` to the camera, or `first`. Default: all."""

    pick: str | None = None
    """Keep the person at a point at a time, `X,Y@TIME`: pixels of the upright picture, and seconds or [HH:]MM:SS from
    the video's beginning. That person is kept before and after too. For files alone. Default: none."""

    count: tuple[str, ...] = ()
    """Lines and zones where instances are counted: `line:X1,Y1,X2,Y2`, `zone:X1,Y1,X2,Y2,X3,Y3,...` in pixels of the
    upright picture, or in percent of its sides, such as `line:50%,0%,50%,100%`. Default: none."""

    # Model: `models`

    model: str | Path | Network = "person"
    """`person` or `person-hq`, which are built in, the path of an .onnx or .engine file, or a function that takes
    pictures, a NumPy array (N, 3, H, W) float32, and returns scores (N, h, w) or (N, C, h, w). Default: `person`."""

    classes: tuple[str, ...] | None = None
    """Labels to keep, of the model's. Default: `person` if the model has that label, else all but `background`."""

    labels: tuple[str, ...] | None = None
    """Names of the output's channels, one each. Default: the model's own, see `models.model`."""

    mean: tuple[float, ...] | None = None
    """Three numbers that are subtracted from red, green and blue in 0..1, each -1e6 to 1e6. Default: the model's own,
    else 0."""

    std: tuple[float, ...] | None = None
    """Three numbers, 1e-6 to 1e6, by which the difference to `mean` is divided. Default: the model's own, else 1."""

    channel_order: ChannelOrder | None = None
    """Order of the input's channels: `rgb` or `bgr`. Default: the model's own, else `rgb`."""

    input_size: tuple[int, int] | None = None
    """Height and width in pixels, each 8 to 8192, of the input of a model with a dynamic size. Default: the model's
    own, of several the one that suits the video, else 512x512."""

    activation: Activation | None = None
    """Function that is still to be applied to the output: `none`, `sigmoid`, `softmax`, or `minmax`, which stretches
    each picture's values to 0..1. Default: the model's own, else by the range of the output's values."""

    model_type: str | None = None
    """A key of `model_types.TYPES`: supplies the meaning that neither file nor options state. Default: the type that
    the network's inputs and outputs show, if any."""

    task: str | None = None
    """What the network's outputs hold: `segmentation`, a mask for each class, or a layout of single things, a
    key of `model_types.TASKS`. Default: the model's own, else by the names and shapes of its outputs."""

    model_output: str | None = None
    """Name of the output that is the mask. Default: the first output that can be a mask."""

    model_inputs: tuple[str, ...] = ()
    """Values of the inputs besides the picture, each as `NAME=VALUE` or `NAME=VALUE,VALUE,...`. Default: the model's
    own."""

    then: tuple[str, ...] = ()
    """Further networks, each as `NAME=FILE.onnx@LABEL`: on crops of the instances with that label, of the model or of
    an earlier network. What they find has the label NAME, or `NAME:CLASS` of several classes. Default: none."""

    # Stretch of the input: `stages.decode`

    start: float = 0.0
    """Time of the first frame in seconds, counted from the video's beginning: 0 to 1,000,000,000. Default: 0."""

    keep_start: bool = False
    """Begin the output at the time at which the source's clock begins, or where `start` is on it. Default: False, which
    begins at 0."""

    duration: float | None = None
    """Length of the stretch in seconds: above 0, up to 1,000,000,000. Default: up to the end."""

    max_frames: int | None = None
    """Largest number of frames: 1 or more. Default: all."""

    strict: bool = False
    """Raise `InputError` for damaged or missing frames of the input instead of logging them. Default: False."""

    # What the input may do: `media.input`

    allow: tuple[str, ...] = ()
    """Exceptions for the input: `playlists` (HLS, concat scripts) lets it name other files or addresses, `private` lets
    redirects and playlists lead to private addresses. Default: none."""

    max_pixels: int = MAX_PIXELS
    """Largest number of pixels of a frame: 1 to 134,217,728. Larger ones are refused. Default: 134,217,728."""

    max_duration: float | None = None
    """Largest length of the input in seconds: above 0, up to 1,000,000,000. A longer one is refused. Default: any."""

    # Live sources: `media.live`

    max_delay: float = MAX_DELAY
    """Seconds that a frame of a live source waits for the pipeline before it is dropped as late: above 0, up to 86,400.
    Default: 0.5."""

    max_interval: int = 3
    """Number of frames, 0 to 30, between two that the network sees of a live source while the stages are too slow for
    `interval`, before frames are dropped. On the CPU, where it gains time, and not with `invert`. Default: 3."""

    stall: float = STALL
    """Seconds of silence after which a live source is lost, also while it is being connected: 0.1 to 86,400.
    Default: 5."""

    reconnect: str = "0.5..10"
    """Seconds between attempts to reconnect to a live source that was lost, `FIRST..LONGEST`: each pause is twice the
    one before. `never` ends the run at the first loss. Default: `0.5..10`."""

    on_loss: OnLoss = "gap"
    """What the output shows while a live source is lost: `gap` nothing, `freeze` the last picture with the effect
    everywhere, `card` a picture that says so. Default: `gap`."""

    low_delay: bool = False
    """For live sources: masks are smoothed only where `smooth` is given, and the encoder holds back no frame. H.264 and
    HEVC alone; files are larger. Default: False."""

    cut_every: float | None = None
    """Seconds after which the output of a live source goes on in a new file, at the next keyframe: 1 to 86,400.
    `output` may have `{name}` and the fields of `strftime` then. Default: one file."""

    # Codec: `stages.encode`

    codec: Codec | None = None
    """Codec of the video: `h264`, `hevc`, `av1`, `ffv1` or `mjpeg`. `mjpeg` and `encode="jpeg"` imply each other.
    Default: `h264`, and `av1` in .webm; that of a cut-out follows from its suffix."""

    format: Format | None = None
    """Container of an output that is a pipe or a file object: `matroska`, `mpegts`, `nut`, `y4m` or `rawvideo`. The
    last two hold no sound. A file's follows from its suffix. Default: `matroska`."""

    quality: Quality | None = None
    """Constant rate factor of the codec: 0 to 51 for h264 and hevc, 0 to 63 for av1. Lower is better; 0 is lossless
    for h264 and hevc. For mjpeg, and for JPEG and WebP pictures, 1 to 100, higher is better. `high` is h264 16, hevc
    11, av1 8, mjpeg 95, pictures 97; on NVENC h264 19, hevc 23, av1 22. Default: h264 25, hevc 18, av1 21, mjpeg 90,
    pictures 92; on NVENC h264 26, hevc 30, av1 32. With it files are about as large as their inputs."""

    preset: str | None = None
    """The codec library's name for speed against size: `ultrafast` to `placebo` for h264 and hevc, `0` to `13` for
    av1, `p1` to `p7` on NVENC. Default: h264 `superfast`, hevc `fast`, av1 `8`, on NVENC `p5`."""

    # Outputs: `pipeline`

    video: bool = True
    """Write a video. Without it a run has no output, and writes `results`, `save_masks` and `count` alone; the stages
    after the masks don't run. Default: True."""

    overwrite: bool = False
    """Replace files that exist. Default: False, which raises `OutputError` for them."""

    verify: bool = False
    """Decode the output afterwards and compare it with the input. Default: False."""

    results: str | Path | TextIO | None = None
    """A file, a named pipe, a file object for text or an http(s) address that gets one JSON object per frame: the found
    classes with area and box. Default: None."""

    results_format: ResultsFormat = "lines"
    """What `results` has: `lines` of JSON, one a frame, `coco`, one JSON object with a mask of each instance, or `mot`,
    a line of text for each instance of a frame. The last two imply `track`. Default: `lines`."""

    rle: bool = False
    """Add each mask to the results, as COCO's run lengths. Default: False."""

    save_masks: str | Path | None = None
    """A video file (.mkv) that gets the masks before refinement, for `masks`. Default: None."""

    trace: str | Path | None = None
    """A JSON file that gets the times of each stage's work, for https://ui.perfetto.dev. Default: None."""

    # Stages and device: `pipeline.plan`

    mode: Mode = "auto"
    """Table of stages: `baseline` has the plain ones, `optimized` those on the GPU or a `BackendError`, `auto` the
    first that can run. Default: `auto`."""

    device: str | None = None
    """`auto`, `cpu`, `cuda` or `cuda:N`, or a processor that runs the network alone: `openvino`, which `openvino:GPU`
    or `openvino:NPU` makes another of OpenVINO's, `coreml`, `directml`, `migraphx` or `rocm`. Default: `auto`, the
    first NVIDIA GPU if there is one, else the CPU."""

    decode: str | None = None
    """Name of the decoder in `pipeline.implementations`. Default: by `mode`."""

    preprocess: str | None = None
    """Name of the preprocessor, as for `decode`. Default: by `mode`."""

    infer: str | None = None
    """Name of the inference, as for `decode`. Default: by `mode`."""

    postprocess: str | None = None
    """Name of the postprocessor, as for `decode`. Default: by `mode`."""

    encode: str | None = None
    """Name of the encoder, as for `decode`. Default: by `mode`."""

    batch_size: int | None = None
    """Number of frames that are processed at a time: 1 or more. Default: 16 on a GPU, 4 there for live sources, 1 on
    the CPU."""

    compile: bool = False
    """Compile the network with torch.compile, for `infer="torch-fp16"` alone. Default: False."""

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():  # before anybody can see the frozen object
            object.__setattr__(self, name, fitted(name, getattr(self, name), kind))
        self._check_video()  # first, since the others complete options
        self._apply_anonymize()
        self._check_effects()
        _choice("mode", self.mode, get_args(Mode))
        _choice("codec", self.codec, (None, *CODECS))
        _choice("format", self.format, (None, *get_args(Format)))
        self._check_format()
        self._check_jpeg()
        self._check_edge()
        self._check_stretch()
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
        by_default = 0.0 if self.masks is not None or self.low_delay or self._covers_boxes else DEFAULT_SMOOTH
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
        if not 0 < pauses[0] <= pauses[1] <= _LONGEST_WAIT:
            raise ConfigError(f"{what}: must rise, from above 0 to at most {_LONGEST_WAIT} seconds")
        return pauses

    @property
    def tracker(self) -> Track | None:
        """Returns `track`, or its default: ids are found where an option needs them."""
        labels = any(Effect.parse(effect).label for effect in (self.effect, *(effect for effect, _ in self.also)))
        needed = (
            self._covers_boxes
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
    def _covers_boxes(self) -> bool:
        return self.anonymize is not None and self.anonymize != "people"

    @property
    def _cutout(self) -> bool:
        return Effect.parse(self.effect).kind == "cutout"

    def _apply_anonymize(self) -> None:
        """Sets the options that `anonymize` stands for. Refuses those that would show what it covers."""
        if self.anonymize is None:
            if self.keep_metadata:
                raise ConfigError("keep metadata: all of it is kept anyway; it is an option of --anonymize")
            return
        wanted = Anonymize.parse(self.anonymize)
        for name in ("also", "keep", "pick", "then", "interval", "masks", "feather"):
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise ConfigError(f"anonymize: leave out --{name}, which may show what is to be covered")
        if self.model not in ("person", wanted.model):
            raise ConfigError(f"anonymize {self.anonymize}: names its network itself; leave out --model")
        effect = "color:#000000" if self.effect == "blur" else self.effect
        if Effect.parse(effect).kind not in COVERS or Effect.parse(effect).label:
            raise ConfigError(
                f"anonymize: of {effect} something may be computed back; choose color, image:FILE or video:FILE"
            )
        chosen = {"model": wanted.model, "effect": effect, "invert": True, "refine": False}
        if not self._covers_boxes:
            chosen["threshold"] = min(self.threshold, SURE_COVER)
        for name, value in chosen.items():
            object.__setattr__(self, name, value)

    def _check_effects(self) -> None:
        for effect, _ in self.also:
            Effect.parse(effect)
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

    def _check_edge(self) -> None:
        if self.smooth is not None and not 0 <= self.smooth <= 1:
            raise ConfigError(f"smooth {self.smooth}: must lie in 0 (off) to 1")
        if self.interval != "auto" and not 0 <= self.interval <= LONGEST_INTERVAL:
            raise ConfigError(
                f"interval {self.interval}: must lie in 0 (every frame) to {LONGEST_INTERVAL}, or be auto"
            )
        if not 0 < self.threshold < 1:
            raise ConfigError(f"threshold {self.threshold}: must lie between 0 and 1, both excluded")
        if not 0 <= self.feather <= 500:
            raise ConfigError(f"feather {self.feather}: must lie in 0 (a sharp edge) to 500")

    def _check_stretch(self) -> None:
        for name, value in (("batch size", self.batch_size), ("max frames", self.max_frames)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} {value}: must be 1 or more")
        if not 0 <= self.start <= _LONGEST:
            raise ConfigError(f"start {self.start}: must be 0 or more seconds, and at most {_LONGEST}")
        for name, length in (("duration", self.duration), ("max duration", self.max_duration)):
            if length is not None and not 0 < length <= _LONGEST:
                raise ConfigError(f"{name} {length}: must be more than 0 seconds, and at most {_LONGEST}")
        if not 1 <= self.max_pixels <= MAX_PIXELS:
            raise ConfigError(f"max pixels {self.max_pixels}: must lie in 1 to {MAX_PIXELS}")
        for exception in self.allow:
            _choice("allow", exception, get_args(Allowed))

    def _check_live(self) -> None:
        if not 0 < self.max_delay <= _LONGEST_WAIT:
            raise ConfigError(f"max delay {self.max_delay}: must be more than 0 seconds, and at most {_LONGEST_WAIT}")
        if not 0 <= self.max_interval <= LONGEST_INTERVAL:
            raise ConfigError(f"max interval {self.max_interval}: must lie in 0 (never) to {LONGEST_INTERVAL}")
        if not 0.1 <= self.stall <= _LONGEST_WAIT:
            raise ConfigError(f"stall {self.stall}: must lie in 0.1 to {_LONGEST_WAIT} seconds")
        if self.cut_every is not None and not 1 <= self.cut_every <= _LONGEST_WAIT:
            raise ConfigError(f"cut every {self.cut_every}: must lie in 1 to {_LONGEST_WAIT} seconds")
        _choice("on loss", self.on_loss, get_args(OnLoss))
        if self.low_delay and self.codec not in (None, "h264", "hevc"):
            raise ConfigError(f"low delay: {self.codec} holds back frames; use h264 or hevc, or leave out --low-delay")
        self.pauses  # noqa: B018  # raises

    def _check_codec(self) -> None:
        """Refuses a quality or a preset that fits no codec which the output may get."""
        by_suffix = ("vp9", "webp") if self._cutout else ("h264", "av1", "webp")
        faults = [self.misfit(codec) for codec in ((self.codec,) if self.codec else by_suffix)]
        if faults[0] is not None and all(faults):
            raise ConfigError(faults[0])

    def _check_instances(self) -> None:
        _choice("track", self.track, (None, *get_args(Track)))
        _choice("results format", self.results_format, get_args(ResultsFormat))
        if self.results_format != "lines" and self.results is None:
            raise ConfigError(f"results format {self.results_format}: name a file for the results with --results")
        if self.keep is not None:
            Keep.parse(self.keep)
        if self.pick is not None:
            Pick.parse(self.pick)
            if self.keep is not None:
                raise ConfigError(f"pick {self.pick}: says who is kept, as does --keep {self.keep}; leave out one")
        for place in self.count:
            Place.parse(place)
        parse_all(self.then)

    def _check_masks(self) -> None:
        """Refuses the options of stages that saved masks replace."""
        if self.masks is None:
            return
        if self.smooth:
            raise ConfigError("smooth: saved masks stay as smooth as they are; leave out --smooth, or --masks")
        for name in ("model", "classes", "interval", "preprocess", "infer", "save_masks"):
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"masks {self.masks}: the masks are found already; leave out {option}, or --masks")

    def _check_video(self) -> None:
        """Refuses a run that would write nothing, and the options of the stages that a run without a video lacks."""
        if self.video:
            return
        for name in _OF_VIDEOS:
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"no video: {option} is for videos; leave out {option}, or --no-video")
        if self.results is None and self.save_masks is None and not self.count:
            raise ConfigError("no video: nothing would be written; add --results, --save-masks or --count")

    def _check_model(self) -> None:
        for name in ("model_type", "task", "model_output", "model_inputs"):
            if callable(self.model) and getattr(self, name):
                raise ConfigError(
                    f"{name.replace('_', ' ')}: {self.model_name} is a function, not a file; leave it out"
                )
        _choice("channel order", self.channel_order, (None, *get_args(ChannelOrder)))
        _choice("activation", self.activation, (None, *ACTIVATIONS))
        _choice("model type", self.model_type, (None, *TYPES))
        _choice("task", self.task, (None, SEGMENTATION, *TASKS))
        self.inputs_by_name  # noqa: B018  # raises
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != 3:
                raise ConfigError(f"{name} {values}: must be three numbers, for red, green and blue")
        if self.std is not None and not all(1 / _FARTHEST <= v <= _FARTHEST for v in self.std):
            raise ConfigError(f"std {self.std}: must be above 0, {1 / _FARTHEST:g} to {_FARTHEST:g}")
        if self.mean is not None and not all(-_FARTHEST <= v <= _FARTHEST for v in self.mean):
            raise ConfigError(f"mean {self.mean}: must be numbers from {-_FARTHEST:g} to {_FARTHEST:g}")
        if self.input_size is not None and not all(8 <= v <= 8192 for v in self.input_size):
            raise ConfigError(f"input size {self.input_size}: height and width must lie in 8 to 8192")


_TYPES = {option.name: option_type(option.type) for option in fields(Config)}


def _choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raises `ConfigError` if `value` is not one of `allowed`."""
    if value not in allowed:
        known = [str(one) for one in allowed if one is not None]
        proposal = did_you_mean(str(value), known)
        raise ConfigError(f"{name} {value!r} is unknown: choose {', '.join(known)}{proposal}")
