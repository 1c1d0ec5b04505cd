"""Jobs of the command line: each input with the files that its run reads and writes."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from segmentation.config import Config
from segmentation.effect import Effect
from segmentation.errors import ConfigError, InputError
from segmentation.media.containers import CUTOUTS
from segmentation.media.input import is_url
from segmentation.options import RunOptions
from segmentation.pipeline.output_paths import default_output

_VIDEO_SUFFIXES = frozenset(".mp4 .m4v .mov .mkv .webm .avi .ts .mts .m2ts .mpg .mpeg .flv .wmv .3gp .ogv".split())
_PATHS = ("/", "./", "../")


@dataclass(frozen=True, slots=True)
class Job:
    """Holds the input and the output of one run, and the options that differ from those of other runs."""

    source: str
    target: Path
    options: RunOptions

    @property
    def files(self) -> list[Path]:
        """Returns the files of this run alone: all that the run writes, and the masks that it reads."""
        others = (self.options.get("results"), self.options.get("save_masks"), self.options.get("masks"))
        also = [Path(path) for _, path in self.options.get("also", ())]
        return [self.target, *also, *(Path(path) for path in others if path)]


def make_jobs(inputs: Sequence[str], output: str | None, config: Config) -> list[Job]:
    """Returns a job for each input; folders and patterns stand for the videos in them. `output` is a file or a folder.

    Raises `ConfigError` if two jobs have a file in common, and `InputError` if an input does not exist.
    """
    if not inputs:
        raise ConfigError("no input: name a video, a folder, a pattern or an http(s) address; --help shows the options")
    sources = [source for text in inputs for source in expand(text)]
    into_folder = output is not None and (len(sources) > 1 or output.endswith("/") or Path(output).is_dir())
    if output is not None and into_folder and not Path(output).is_dir():
        raise ConfigError(f"--output {output}: several inputs need a folder that exists")
    if config.trace is not None and len(sources) > 1:
        raise ConfigError(f"--trace {config.trace}: one file for one input; trace them apart")
    jobs: list[Job] = []
    for source in sources:
        target = default_output(source, config)
        if output is not None:
            target = Path(output) / target.name if into_folder else Path(output)
        others = [s for s in sources if s != source and not is_url(s)]
        if os.path.exists(target) and any(target.samefile(s) for s in others):
            raise ConfigError(f"{source}: its output {target} is an input too; name another with -o")
        job = Job(source, target, _named(config, source, target, single=len(sources) == 1))
        for path in job.files:
            if any(path in other.files for other in jobs):
                raise ConfigError(f"{source}: another input has the file {path} too; process them apart")
        jobs.append(job)
    return jobs


def _named(config: Config, source: str, target: Path, *, single: bool) -> RunOptions:
    """Returns the options with the names of a run's other files.

    In folders, these files are named after the run's output, and masks after its input.
    """

    def within(option: str, path: str | Path, name: str) -> Path:
        if Path(path).is_dir():
            return Path(path) / name
        if single:
            return Path(path)
        raise ConfigError(f"--{option} {path}: several inputs need a folder that exists")

    options: RunOptions = {
        "also": [(e, within("also", path, f"{target.stem}.{_suffixes(e, target)}")) for e, path in config.also]
    }
    masks = f"{default_output(source).stem}.masks.mkv"  # one name, so that --masks finds the file of --save-masks
    if config.results is not None:
        options["results"] = within("results", config.results, f"{target.stem}.jsonl")
    if config.save_masks is not None:
        options["save_masks"] = within("save-masks", config.save_masks, masks)
    if config.masks is not None:
        options["masks"] = within("masks", config.masks, masks)
    return options


def _suffixes(effect: str, target: Path) -> str:
    """Returns the end of another output's name: its effect, and the suffix of a container that holds the effect."""
    kind = effect.partition(":")[0]
    alike = kind != "cutout" or target.suffix.lower() in CUTOUTS
    return f"{kind}{target.suffix if alike else '.mov'}"


def effect_and_file(text: str) -> tuple[str, str]:
    """Returns effect and file of `mask:mask.mkv` or `blur:40:soft.mp4`. Raises `ConfigError`.

    The file follows the last colon that has an effect before it. A file name with colons needs a path before its first
    colon, as in `mask:./12:30.mkv`.
    """
    files = {at: text[at + 1 :] for at, letter in enumerate(text) if letter == ":"}
    files = {at: file for at, file in files.items() if file and (":" not in file or file.startswith(_PATHS))}
    if not files or _wrong(text) is None:  # all of it is an effect
        raise ConfigError(f"--also {text}: write EFFECT:FILE, such as mask:mask.mkv or blur:40:soft.mp4")
    for at in reversed(files):
        if _wrong(text[:at]) is None:
            return text[:at], files[at]
    raise ConfigError(f"--also {text}: {_wrong(text[: max(files)])}")


def _wrong(effect: str) -> ConfigError | None:
    """Returns the error of a text that is no effect, else None."""
    try:
        Effect.parse(effect)
    except ConfigError as exc:
        return exc
    return None


def expand(text: str) -> list[str]:
    """Returns a folder's videos, a pattern's matches, or the one file or address that `text` names.

    Raises `InputError` if there are none.
    """
    path = Path(text)
    if is_url(text) or path.is_file():
        return [text]
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in _VIDEO_SUFFIXES)
    else:
        found = sorted(Path(p) for p in glob.glob(text)) if glob.has_magic(text) else []
        if not found and not glob.has_magic(text):
            raise InputError(f"{text}: no such file")
    # The output of an earlier run is not an input of the next.
    videos = [str(p) for p in found if p.is_file() and ".segmented" not in p.suffixes and not p.name.startswith(".")]
    if not videos:
        raise InputError(f"{text}: no videos there")
    return videos
