"""Names of a run's files."""

import io
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from segmentation.errors import ConfigError
from segmentation.frames.byte_source import is_fifo
from segmentation.frames.picture_names import NUMBER, PICTURE_SUFFIXES, PICTURES
from segmentation.frames.source import Source, is_device, is_url
from segmentation.media.output_stream import OutputAddress, OutputDevice, OutputStream, Target
from segmentation.media.pictures.still import content_of
from segmentation.media.pictures.webp import is_animated_webp
from segmentation.models.model import BUILT_IN
from segmentation.models.sidecar import sidecar_of
from segmentation.options.config import Config
from segmentation.options.then import parse_all

T = TypeVar("T")

NAME = "{name}"  # in the names of outputs: stands for the name of the live source


def default_output(
    given: str | Source, config: Config | None = None, *, whole_name: bool = False, content: str = ""
) -> Path:
    """Returns `<stem>.segmented.mp4` beside the input, `.mkv` for ffv1, `.mov` for cut-outs.

    A picture gets a picture: of the input's suffix if such are written, else .png, as for cut-outs. GIFs get GIFs, and
    as cut-outs WebP; so does animated WebP. Numbered pictures get a video named as what they have in common, and so
    does a video that is named as a picture. `content` is the file with the input's bytes, if not the named one.

    For an address or a device it is in the current folder, and for standard input `stdin.segmented.mp4` there. With
    `whole_name` the input's suffix stays: `<stem>.mov.segmented.mp4`, and a live source's host.
    """
    config = config or Config()
    cutout = config.effects[0].kind == "cutout"
    suffix = ".mov" if cutout else ".mkv" if config.codec == "ffv1" else ".mp4"
    source = Source.parse(given)
    if source.is_live:
        name = live_name(source, whole=whole_name)
        return Path(f"{name}-%Y%m%d-%H%M%S.mkv" if config.cut_every is not None else f"{name}.segmented{suffix}")
    input = source.text
    if source.is_url:
        place = re.split("[?#]", input.partition("://")[2])[0].rstrip("/")
        input = place.rpartition("/")[2] if "/" in place else ""
    elif input in ("-", "/dev/stdin"):
        input = "stdin"
    own, content = Path(input).suffix.lower(), content or source.text
    if source.is_pattern:
        return Path(input).parent / f"{NUMBER.sub('', Path(input).stem).strip('._- ') or 'video'}.segmented{suffix}"
    if own == ".gif" or (own == ".webp" and is_animated_webp(content)):
        suffix = ".webp" if cutout else own
    elif own in PICTURE_SUFFIXES and content_of(content) != "video":
        suffix = own if own in PICTURES and not cutout else ".png"
    elif not own and content_of(content) == "picture":
        suffix = ".png"
    name = Path(input).name if whole_name else Path(input).stem
    return Path(input).parent / f"{name or 'video'}.segmented{suffix}"


def fill_name(output: T, source: Source) -> T:
    """Returns an output with the name of its live source in place of `{name}`, and any other output as it is."""
    if not (source.is_live and isinstance(output, str | Path)):
        return output
    return type(output)(str(output).replace(NAME, live_name(source, whole=True)))


def with_name(config: Config, source: Source) -> Config:
    """Returns the options with all names of files filled, see `fill_name`."""
    if not source.is_live:
        return config
    return replace(
        config,
        also=[(effect, fill_name(path, source)) for effect, path in config.also],
        results=fill_name(config.results, source),
        audit=fill_name(config.audit, source),
        save_masks=fill_name(config.save_masks, source),
    )


def live_name(source: Source, *, whole: bool) -> str:
    """Returns the name of a live source for files: its own, or the last part of its path, or host and path.

    No secrets are in it.
    """
    if source.name:
        return source.name
    address = source.address
    # Some cameras have the password in the path: user=NAME_password=...
    place = re.split("[?#=]", address.partition("://")[2] or address)[0]
    host, _, path = place.partition("/")
    parts = [host.rpartition("@")[2], path] if whole else [path.rstrip("/").rpartition("/")[2]]
    return re.sub(r"[^\w.]+", "-", "/".join(parts)).strip("-.") or "video"


def check_output(output: object, config: Config) -> None:
    """Raises `ConfigError` for an output whose name is empty, and for one of a run without a video."""
    if isinstance(output, str) and not output.strip():  # as of a variable that is not set
        raise ConfigError(f"output {output!r}: must be the name of a file or a folder")
    if output is not None and not config.video:
        raise ConfigError("no video: -o is for videos; leave out -o (output), or --no-video (video=False)")


def check_results(config: Config) -> None:
    """Raises `ConfigError` for results to a file object of bytes, or to an address in a format that is no lines."""
    if isinstance(config.results, io.RawIOBase | io.BufferedIOBase):
        kind = type(config.results).__name__
        raise ConfigError(f"results: is of type {kind}; give a file's name, or a file object opened with 'w'")
    if isinstance(config.results, str) and is_url(config.results) and config.results_format != "lines":
        form = config.results_format
        raise ConfigError(f"results format {form}: is for files; {config.results} gets lines; leave it out")


def check_streams(source: Source, target: Target | None, config: Config) -> None:
    """Raises `ConfigError` for options that a pipe can't have: what it held can't be read again."""
    check_live(source, config)
    if isinstance(target, OutputAddress) and not source.is_live:
        raise ConfigError(f"output {target}: takes live sources, whose frames come at their own speed; name a file")
    if isinstance(target, OutputDevice) and not source.is_live:
        raise ConfigError(f"output {target}: takes live sources, and files at their own speed: add --pace")
    if isinstance(target, OutputStream) and config.cut_every is not None:
        raise ConfigError(f"cut every {config.cut_every:g}: is for files, and {target} is none; leave out --cut-every")
    if config.audit is not None and (source.is_live or isinstance(target, OutputStream)):
        raise ConfigError("audit: reads the output after the run, which must be a file; leave out --audit")
    if not config.verify:
        return
    if source.is_read_once:
        raise ConfigError(f"verify: would read {source.text} a second time, and it can be read only once")
    if isinstance(target, OutputStream) or any(is_fifo(path) for _, path in config.also):
        raise ConfigError("verify: reads outputs after the run, and pipes and file objects can't be; name files")


def check_live(source: Source, config: Config) -> None:
    """Raises `ConfigError` for options that a live source can't have: it has no beginning, and never comes again.

    Likewise for those that it alone can have.
    """
    if not source.is_live:
        if config.cut_every is not None:
            raise ConfigError(f"cut every {config.cut_every:g}: is for live sources; leave out --cut-every")
        if config.low_delay:
            raise ConfigError("low delay: is for live sources; leave out --low-delay")
        return
    reasons = {"start": "has no beginning", "verify": "can't be read again", "masks": "is never the same"}
    reasons |= {"project": "can't be read again", "pitch_shift": "hands its sound on as it is"}
    for name, reason in reasons.items():
        if getattr(config, name):
            words = name.split("_")
            raise ConfigError(f"{' '.join(words)}: a live source {reason}; leave out --{'-'.join(words)}")


def written_files(target: Target | None, config: Config) -> list[tuple[str, Path]]:
    """Returns the files that a run writes, each behind the option that names it."""
    named = [("-o", target)] if isinstance(target, Path) else []
    named += [("--also", Path(path)) for _, path in config.also]
    others = {"--results": config.results, "--audit": config.audit, "--save-masks": config.save_masks}
    others["--trace"] = config.trace
    named += [
        (option, Path(path))
        for option, path in others.items()
        if isinstance(path, str | Path) and not is_url(str(path))
    ]
    return named


def _read_networks(config: Config) -> list[tuple[Path, str]]:
    """Returns the files of the networks and those beside them, each with what is said of it."""
    networks: list[tuple[object, str]] = [(one.model, "--anonymize") for one in config.covered]
    networks += [(config.model, "--model"), *((then.file, "--then") for then in parse_all(config.then))]
    named = [
        (Path(network), f"what {option} reads")
        for network, option in networks
        if isinstance(network, str | Path) and str(network) not in BUILT_IN
    ]
    return [(path, what) for network, what in named for path in (network, sidecar_of(network))]


def _status(path: str | Path) -> os.stat_result | None:
    """Returns the status of what a name leads to; `None` where it leads nowhere."""
    try:
        return os.stat(path)
    except (OSError, ValueError):  # as `os.path.exists` has it
        return None


def check_names(source: Source, target: Target | None, config: Config) -> None:
    """Raises `ConfigError` if two of the files to be written are one, or one of them is read."""
    reads = [(None if source.stream else source.text, "the input itself"), (config.masks, "what --masks reads")]
    reads += [(config.project, "what --project reads"), (config.review, "what --review reads")]
    reads.append((config.effects[0].file, "what --effect reads"))
    reads += [(effect.file, "what --also reads") for effect in config.effects[1:]]
    reads += _read_networks(config)
    seen: dict[Path, str] = {}
    for option, path in written_files(target, config):
        if is_device(path):
            raise ConfigError(f"{option} {path}: is a video device, which -o alone can name")
        there = _status(path)
        for read, what in reads:
            if read is None or there is None or (found := _status(read)) is None:
                continue
            if os.path.samestat(there, found):
                raise ConfigError(f"{option} {path}: is {what}; name another file")
        try:
            own = path.resolve()
        except (OSError, RuntimeError, ValueError) as exc:  # a symlink that leads to itself, a name that can't be
            raise ConfigError(f"{option} {path}: cannot be written ({exc})") from exc
        if (other := seen.get(own)) is not None:
            what = "the output" if other == "-o" else f"the file of {other}"
            raise ConfigError(f"{option} {path}: is {what} too; name another file")
        seen[own] = option
