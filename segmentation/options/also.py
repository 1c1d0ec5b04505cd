"""The values of `--also`: an effect and the file that it goes to."""

import re

from segmentation.errors import ConfigError
from segmentation.options.effect import Effect

_PATHS = ("/", "./", "../")
_ARGUMENT = re.compile("[^:@]*:[^:]*")  # an effect's one colon; a second one, or one behind a label, begins a file


def effect_and_file(text: str) -> tuple[str, str]:
    """Returns effect and file of `mask:mask.mkv`, `blur:40:soft.mp4` or `blur@face:soft.mp4`. Raises `ConfigError`.

    The file follows the last colon. A file name with colons needs a path before its first colon, as in
    `mask:./12:30.mkv`.
    """
    files = {at: text[at + 1 :] for at, letter in enumerate(text) if letter == ":"}
    files = {at: file for at, file in files.items() if file and (":" not in file or file.startswith(_PATHS))}
    if not files or (_ARGUMENT.fullmatch(text) and _wrong(text) is None):  # all of it is an effect
        raise ConfigError(f"--also {text or repr(text)}: write EFFECT:FILE, such as mask:mask.mkv or blur:40:soft.mp4")
    for at, file in files.items():  # those with colons come first
        if _wrong(text[:at]) is None:
            return text[:at], file
    raise ConfigError(f"--also {text}: {_wrong(text[: max(files)])}")


def _wrong(effect: str) -> ConfigError | None:
    """Returns the error of a text that is no effect, else None."""
    try:
        Effect.parse(effect)
    except ConfigError as exc:
        return exc
    return None
