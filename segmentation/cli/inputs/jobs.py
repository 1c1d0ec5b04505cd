"""Jobs of the command line: each input with the files that its run reads and writes."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from segmentation.cli.inputs.find_inputs import VIDEO_SUFFIXES, FoundInput, Inputs
from segmentation.cli.inputs.standard_streams import STANDARD, is_stdin
from segmentation.errors import ConfigError, hide_secrets
from segmentation.frames.byte_source import is_fifo
from segmentation.frames.picture_names import NUMBER, PICTURE_SUFFIXES, PICTURES, numbered_name, numbers_of
from segmentation.frames.source import Source, is_device, is_url
from segmentation.media.containers import CUTOUTS
from segmentation.media.output_stream import is_output_address
from segmentation.media.pictures.still import content_of
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.options.keywords import RunOptions
from segmentation.pipeline.output_paths import NAME, check_output, default_output, fill_name, live_name
from segmentation.sessions.picture_run import of_videos_alone, refused_for_pictures

_FILES = VIDEO_SUFFIXES | {
    ".jsonl",
    ".json",
    ".gif",
    *PICTURES,
}  # names with these suffixes are no folders that are to be made
_RESULTS = {
    "lines": ".jsonl",
    "coco": ".json",
    "mot": ".txt",
    "cvat": ".xml",
    "label-studio": ".json",
    "yolo": "/%06d.txt",
    "png": "/%06d.png",
}  # ends of names in a folder of results


@dataclass(frozen=True, slots=True)
class Job:
    """Holds the input and the output of one run, and the options that differ from those of other runs."""

    source: Source
    target: Path | None  # `None` without a video
    options: RunOptions
    folders: set[Path] = field(default_factory=set)  # to be made if they are missing
    address: str | None = None  # that the video is sent to, in place of `target`

    @property
    def written(self) -> list[Path]:
        """Returns the files that this run writes."""
        others = [str(path) for path in map(self.options.get, ("results", "audit", "save_masks")) if path]
        also = [Path(path) for _, path in self.options.get("also", ())]
        videos = [] if self.address or self.target is None else [self.target]
        paths = [*videos, *also, *(Path(path) for path in others if not is_url(path))]
        return [path for path in paths if str(path) != STANDARD and not is_fifo(path)]

    @property
    def done(self) -> bool:
        """Returns whether all files of this run exist. Files only come into being complete."""
        return bool(self.written) and all(map(files_of, self.written))

    @property
    def piped(self) -> bool:
        """Returns whether a pipe is read, or the video goes to a pipe or device, which this process has open."""
        source, target = self.source.text, str(self.target or "")
        return is_stdin(source) or is_fifo(source) or target == STANDARD or is_fifo(target) or is_device(target)

    def make_folders(self) -> Iterator[Path]:
        """Makes the folders that are missing, and yields each. Raises `OSError`."""
        for folder in self.folders:
            for place in (*reversed(folder.parents), folder):
                if not place.is_dir():
                    place.mkdir(exist_ok=True)
                    yield place


def longest_first(jobs: Sequence[Job]) -> list[Job]:
    """Returns the jobs by the size of their inputs, so that the last ones to end are short."""
    return sorted(jobs, key=lambda job: job.source.size, reverse=True)


def make_jobs(inputs: Sequence[FoundInput], output: str | None, config: Config) -> list[Job]:
    """Returns a job for each input. `output` is a file, a folder, or an address that video is sent to.

    Raises `ConfigError` if two jobs have a file or an address in common, and for an output without a video.
    """
    check_output(output, config)
    several = len(inputs) > 1
    address = output if is_output_address(output) else None
    output = None if address else output
    if several and address is not None and NAME not in address:
        raise ConfigError(f"--output {hide_secrets(address)}: several inputs need an address each; write {NAME} in it")
    if several and STANDARD in (output, config.results):
        raise ConfigError("-: several inputs can't share standard output; name a folder")
    folder = output is not None and NAME not in output and _is_folder("output", output, several=several)
    if config.trace is not None and several:
        raise ConfigError(f"--trace {config.trace}: one file for one input; trace them apart")
    if config.project is not None and several:
        raise ConfigError(f"--project {config.project}: is of one video; process the inputs apart")
    jobs: list[Job] = []
    files = {_identity(one.source.text): one.source for one in inputs if not one.source.is_url}
    owners: dict[Path, Source] = {}
    for found, target, whole in _targets(inputs, output, config, folder=folder):
        source = found.source
        if config.video and os.path.exists(target) and files.get(_identity(target), source) != source:
            raise ConfigError(f"{source.text}: its output {target} is an input too; name another with -o")
        job = Job(source, target if config.video else None, {}, address=fill_name(address, source))
        if folder or (source.is_live and config.cut_every is None and NAME in str(output)):  # parts make their own
            job.folders.add(target.parent)
        _name_others(job, target, config, found, several=several, whole=whole)
        masks = job.options.get("masks")
        for path in [*job.written, *([Path(masks)] if masks else [])]:
            if owners.setdefault(path, source) != source:
                raise ConfigError(f"{source.text}: another input has the file {path} too; process them apart")
        jobs.append(job)
    return jobs


def leave_out_pictures(inputs: Inputs, config: Config) -> None:
    """Leaves pictures out of several inputs where an option is of videos alone.

    Raises `ConfigError` where nothing else is there.
    """
    if (row := of_videos_alone(config)) is None:
        return
    names: list[str] = []
    others: list[FoundInput] = []
    for one in inputs.sources:
        if _is_still(one.source.text):
            names.append(one.source.text)
        else:
            others.append(one)
    if names and not others:
        count = "" if len(names) == 1 else f" ({len(names)} of {len(names)} inputs are pictures)"
        raise ConfigError(f"{names[0]}: {refused_for_pictures(config)}{count}")
    inputs.sources = others
    inputs.pictures, inputs.of_videos = names, row.flag


def _is_still(path: str) -> bool:
    return Path(path).suffix.lower() in PICTURE_SUFFIXES and os.path.isfile(path) and content_of(path) != "video"


def _targets(
    inputs: Sequence[FoundInput], output: str | None, config: Config, *, folder: bool
) -> list[tuple[FoundInput, Path, bool]]:
    """Returns each input with its output, and whether the output's name has all of the input's name.

    That is so where `a.mp4` and `a.mov` would have the same output: they get `a.mp4.segmented.mp4` and
    `a.mov.segmented.mp4`.
    """
    whole: set[int] = set()
    while True:
        targets = []
        for number, found in enumerate(inputs):
            target = default_output(found.source, config, whole_name=number in whole)
            if output is not None:
                named = fill_name(Path(output), found.source)
                target = Path(output, found.folder, target.name) if folder else named
            targets.append(target)
        places = [os.path.abspath(target) for target in targets]
        count = Counter(places)
        alike = {number for number, place in enumerate(places) if count[place] > 1} - whole
        if not alike:
            return [(found, targets[number], number in whole) for number, found in enumerate(inputs)]
        whole |= alike


def files_of(path: Path) -> list[Path]:
    """Returns the file of this name, or the numbered files for which the name stands; none if there are none."""
    if os.path.lexists(path):
        return [path]
    if len(NUMBER.findall(path.name)) != 1:
        return []
    return [path.with_name(numbered_name(path.name, number)) for number in numbers_of(path)]


def _identity(path: str | Path) -> tuple[int, int] | None:
    """Returns the identity of a file, whatever its name; None if there is no such file."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    return about.st_dev, about.st_ino


def _is_folder(option: str, path: str | Path, *, several: bool) -> bool:
    """Returns whether an option names a folder, or one that is to be made for several inputs. Raises `ConfigError`."""
    if str(path) == STANDARD:
        return False
    if os.path.isdir(path) or str(path).endswith("/"):
        return True
    if several and (os.path.lexists(path) or Path(path).suffix.lower() in _FILES):
        raise ConfigError(f"--{option} {path}: several inputs need a folder")
    return several


def _name_others(job: Job, target: Path, config: Config, found: FoundInput, *, several: bool, whole: bool) -> None:
    """Adds the names of a run's other files.

    In folders, these files are named after the run's output, which it may lack, and masks after its input.
    """

    def within(option: str, path: str | Path, name: str) -> str | Path:
        if is_url(str(path)):
            return _address(option, str(path), found.source, several=several)
        if NAME in str(path) or not _is_folder(option, path, several=several):
            return fill_name(Path(path), found.source)
        file = Path(path, found.folder, name)
        job.folders.add(file.parent)
        return file

    options = job.options
    options["also"] = [
        (effect, within("also", path, f"{target.stem}.{_suffixes(effect, target)}")) for effect, path in config.also
    ]
    # One name, so that --masks finds the file of --save-masks.
    masks = f"{default_output(found.source, whole_name=whole).stem}.masks.mkv"
    if config.results is not None:
        assert isinstance(config.results, str | Path), "the command has no file objects"
        stem = target.stem if config.cut_every is None else live_name(found.source, whole=True)  # the former has a time
        options["results"] = within("results", config.results, f"{stem}{_RESULTS[config.results_format]}")
    if config.audit is not None:
        options["audit"] = within("audit", config.audit, f"{target.stem}.audit.html")
    if config.save_masks is not None:
        options["save_masks"] = within("save-masks", config.save_masks, masks)
    if config.masks is not None:
        if several and not os.path.isdir(config.masks):
            raise ConfigError(f"--masks {config.masks}: several inputs need a folder that exists")
        inside = os.path.isdir(config.masks)
        options["masks"] = Path(config.masks, found.folder, masks) if inside else Path(config.masks)


def _address(option: str, address: str, source: Source, *, several: bool) -> str:
    """Returns the address that an input's file is sent to. Raises `ConfigError` where several would share it."""
    filled = fill_name(address, source)
    if several and filled == address:
        raise ConfigError(f"--{option} {address}: several inputs need an address each; write {NAME} in it, for streams")
    return filled


def _suffixes(effect: str, target: Path) -> str:
    """Returns the end of another output's name: its effect, and the suffix of a container that holds the effect."""
    kind = Effect.parse(effect).kind
    suffix = target.suffix.lower()
    if kind != "cutout" or suffix in CUTOUTS:
        return f"{kind}{target.suffix}"
    return f"{kind}{'.png' if suffix in PICTURES else '.webp' if suffix == '.gif' else '.mov'}"
