"""What the command line names, as jobs: which input goes to which files."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from segmentation.config import Config
from segmentation.effect import Effect
from segmentation.errors import ConfigError, InputError
from segmentation.media.containers import CUTOUTS
from segmentation.media.input import is_url
from segmentation.pipeline.outputs import default_output

_VIDEO_SUFFIXES = frozenset(".mp4 .m4v .mov .mkv .webm .avi .ts .mts .m2ts .mpg .mpeg .flv .wmv .3gp .ogv".split())
_PATHS = ("/", "./", "../")


@dataclass(frozen=True, slots=True)
class Job:
    """One run: its input, its output, and the options with the names of its other files."""

    source: str
    target: Path
    config: Config

    @property
    def files(self) -> list[Path]:
        """What belongs to this run alone: what it writes, and the masks that it reads."""
        options = (self.config.results, self.config.save_masks, self.config.masks)
        return [self.target, *(Path(path) for _, path in self.config.also), *(Path(path) for path in options if path)]


def make_jobs(inputs: Sequence[str], output: str | None, config: Config) -> list[Job]:
    """Inputs, folders and patterns as jobs, no file twice. Raises `ConfigError` or `InputError`."""
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


def _named(config: Config, source: str, target: Path, *, single: bool) -> Config:
    """The options of one run: in folders, its other files are named after its output, and masks after its input."""

    def within(option: str, path: str | Path, name: str) -> Path:
        if Path(path).is_dir():
            return Path(path) / name
        if single:
            return Path(path)
        raise ConfigError(f"--{option} {path}: several inputs need a folder that exists")

    also = [
        (effect, within("also", path, f"{target.stem}.{_suffixes(effect, target)}")) for effect, path in config.also
    ]
    masks = f"{default_output(source).stem}.masks.mkv"  # by the same name for --save-masks and --masks
    named = {"results": f"{target.stem}.jsonl", "save_masks": masks, "masks": masks}
    paths: dict[str, Any] = {
        option: within(option.replace("_", "-"), path, name)
        for option, name in named.items()
        if (path := getattr(config, option)) is not None
    }
    return replace(config, also=also, **paths)


def _suffixes(effect: str, target: Path) -> str:
    """By which another output of a run differs from its first: its effect, and for a cut-out what holds alpha."""
    kind = effect.partition(":")[0]
    alike = kind != "cutout" or target.suffix.lower() in CUTOUTS
    return f"{kind}{target.suffix if alike else '.mov'}"


def effect_and_file(text: str) -> tuple[str, str]:
    """Reads `mask:mask.mkv` or `blur:40:soft.mp4`: an effect and the file that shows it. Raises `ConfigError`.

    The file is what follows the last colon that has an effect before it; colons in a file's own name need a path before
    them, as in `mask:./12:30.mkv`.
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
    """What is wrong with this effect, if anything."""
    try:
        Effect.parse(effect)
    except ConfigError as exc:
        return exc
    return None


def expand(text: str) -> list[str]:
    """A folder's videos, a pattern's matches, or the one file or address that `text` names."""
    path = Path(text)
    if is_url(text) or path.is_file():
        return [text]
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in _VIDEO_SUFFIXES)
    else:
        found = sorted(Path(p) for p in glob.glob(text)) if glob.has_magic(text) else []
        if not found and not glob.has_magic(text):
            raise InputError(f"{text}: no such file")
    # What an earlier run has put out is not an input of the next.
    videos = [str(p) for p in found if p.is_file() and ".segmented" not in p.suffixes and not p.name.startswith(".")]
    if not videos:
        raise InputError(f"{text}: no videos there")
    return videos
