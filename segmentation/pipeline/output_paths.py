"""Names of a run's files."""

import os
import re
from pathlib import Path

from segmentation.config import Config
from segmentation.effect import Effect
from segmentation.errors import ConfigError
from segmentation.media.containers import NUMBER, PICTURE_SUFFIXES, PICTURES, is_sequence
from segmentation.media.webp import is_animated_webp


def default_output(input: str, config: Config | None = None, *, whole_name: bool = False) -> Path:
    """Returns `<stem>.segmented.mp4` beside the input, `.mkv` for ffv1, `.mov` for cut-outs.

    A picture gets a picture: of the input's suffix if such are written, else .png, as for cut-outs. GIFs get GIFs, and
    as cut-outs WebP; so does animated WebP. Numbered pictures get a video named as what they have in common.

    For an address it is in the current folder. With `whole_name` the input's suffix stays:
    `<stem>.mov.segmented.mp4`.
    """
    config = config or Config()
    cutout = Effect.parse(config.effect).kind == "cutout"
    suffix = ".mov" if cutout else ".mkv" if config.codec == "ffv1" else ".mp4"
    if input.startswith(("http://", "https://")):
        place = re.split("[?#]", input.partition("://")[2])[0].rstrip("/")
        input = place.rpartition("/")[2] if "/" in place else ""
    own = Path(input).suffix.lower()
    if is_sequence(input):
        return Path(input).parent / f"{NUMBER.sub('', Path(input).stem).strip('._- ') or 'video'}.segmented{suffix}"
    if own == ".gif" or (own == ".webp" and is_animated_webp(input)):
        suffix = ".webp" if cutout else own
    elif own in PICTURE_SUFFIXES:
        suffix = own if own in PICTURES and not cutout else ".png"
    name = Path(input).name if whole_name else Path(input).stem
    return Path(input).parent / f"{name or 'video'}.segmented{suffix}"


def check_names(source: str, target: Path, config: Config) -> None:
    """Raises `ConfigError` if two of the files to be written are one, or one of them is read."""
    named = [("-o", target), *(("--also", Path(path)) for _, path in config.also)]
    others = {"--results": config.results, "--save-masks": config.save_masks, "--trace": config.trace}
    named += [(option, Path(path)) for option, path in others.items() if path is not None]
    reads = [(source, "the input itself"), (config.masks, "what --masks reads")]
    reads.append((Effect.parse(config.effect).file, "what --effect reads"))
    reads += [(Effect.parse(effect).file, "what --also reads") for effect, _ in config.also]
    seen: dict[Path, str] = {}
    for option, path in named:
        for read, what in reads:
            if read is not None and os.path.exists(path) and os.path.exists(read) and os.path.samefile(path, read):
                raise ConfigError(f"{option} {path}: is {what}; name another file")
        try:
            own = path.resolve()
        except (OSError, RuntimeError, ValueError) as exc:  # a symlink that leads to itself, a name that can't be
            raise ConfigError(f"{option} {path}: cannot be written ({exc})") from exc
        if (other := seen.get(own)) is not None:
            what = "the output" if other == "-o" else f"the file of {other}"
            raise ConfigError(f"{option} {path}: is {what} too; name another file")
        seen[own] = option
