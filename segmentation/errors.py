"""Errors that users can act on; any other exception that surfaces is a bug.

    SegmentationError
        ConfigError
        InputError: Stopped
        OutputError: OutputExists, ReaderGone
        ModelError: UnknownOperator
        EngineError
        BackendError: LacksEngine, NotProven
        RefusesNetwork: UnknownOperator, NotProven
        DeviceError: DeviceMemoryError
        InternalError

Each message is one line that names the fault, the value and the remedy.
"""

import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

# Characters that move the cursor, begin another line, or turn the direction of writing; and bytes that are no UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Some cameras take user and password in the path, as in /user=admin_password=..._channel=1.
_IN_PATH = re.compile(r"((?:user|pass|pwd)[a-z]*=).*?(?=_[a-z]+=|[&;/]|$)", re.IGNORECASE)
# A user and what can't be a port behind a colon: a password, whatever is in it.
_PASSWORD = r"[^\s:/?#@]*:(?!\d*[:,;.)'\"]*(?:[/?#\s]|$)).*@"
# Scheme, user and password, host and path, query and fragment. Punctuation at the end belongs to the sentence around.
_ADDRESS = re.compile(
    rf"([a-z0-9+.-]+://)([^\s/?#]*@|{_PASSWORD})?([^\s?#]*)([?#]\S*?)?(?=[:,;.)'\"]*(?:\s|$))",
    re.IGNORECASE,
)

# Addresses that were typed wrong: a scheme without its ://, or none before user, password and host.
_TYPED_WRONG = (
    re.compile(r"(?<!\w)((?:(?:rtsp|rtmp|http)s?|srt|udp)(?!://[^/])(?:[:;]*[/\\]+|[:;]+))[^\s/\\@]+@", re.IGNORECASE),
    re.compile(r"(?<![^\s'\"(=])()[^\s/:@'\"(=]+:[^\s@/]+@(?=(?:\d+(?:\.\d+){3}|[\w-]+(?:\.[\w-]+)+|localhost)[:/])"),
)
# Texts of errors whose types do not show that the machine is at its limit: of threads, OpenCV, PyTorch, ONNX Runtime.
_EXHAUSTED = (
    *("start new thread", "pthread_create failed"),
    *("insufficient memory", "allocate memory", "not enough memory", "bad_alloc"),
)


class SegmentationError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 1  # of the command line

    def __str__(self) -> str:
        """Returns the message, without the secrets of an address in it."""
        return hide_secrets(super().__str__())

    def __repr__(self) -> str:
        """Returns the name of the class and the message, likewise."""
        return hide_secrets(super().__repr__())


class ConfigError(SegmentationError, ValueError):
    """An option has a value that it cannot have."""

    exit_code = 2


class InputError(SegmentationError):
    """The input cannot be read, or is no video, or (with `strict`) is damaged."""


class Stopped(InputError):
    """The run was stopped before it had anything to complete."""


class ModelError(SegmentationError):
    """The model cannot be read, or is not one that segments pictures."""


class RefusesNetwork(SegmentationError):
    """The chosen implementation does not serve this network here. Another implementation may serve it."""


class UnknownOperator(RefusesNetwork, ModelError):
    """The chosen implementation lacks an operator of the network."""


class EngineError(SegmentationError):
    """An engine cannot be built from the model, or is not one to be loaded here."""


class BackendError(SegmentationError):
    """This machine lacks a package, a device or an implementation that was asked for."""

    exit_code = 3


class LacksEngine(BackendError):
    """The GPU has no video engine for this codec, format or size. The plan then takes another implementation."""


class NotProven(RefusesNetwork, BackendError):
    """The trial of an engine on this machine speaks against it."""

    failed = False  # the engine can't be run or is wrong; else it is slow, or was not tried


class DeviceError(SegmentationError):
    """The GPU failed while it worked."""


class DeviceMemoryError(DeviceError):
    """The GPU's memory does not suffice."""


class OutputError(SegmentationError):
    """The output cannot be written."""


class OutputExists(OutputError):
    """An output is there already, and is not to be replaced."""


class ReaderGone(OutputError):
    """The reader of an output has closed the pipe. That is the usual end before programs such as `head`."""

    exit_code = 141  # as of programs that SIGPIPE ends


class InternalError(SegmentationError):
    """A bug: an exception that nothing has foreseen, which is the cause or a note of it."""


def reported(exc: Exception, source: str = "") -> SegmentationError:
    """Returns what is to be said of an exception that has ended the work on `source`: itself if it is one of these.

    Else the system has refused something, memory, threads or descriptors are used up, or it is an `InternalError`. The
    exception is the cause.
    """
    chain, name = tuple(causes(exc)), f"{source}: " if source else ""
    if any(_is_file_limit(one) for one in chain):
        error = SegmentationError(f"{name}too many files are open; raise ulimit -n, or run fewer at a time")
    elif isinstance(exc, SegmentationError):
        return exc
    elif any(map(is_exhausted, chain)):
        error = SegmentationError(f"{name}memory or threads are used up; free some, or raise ulimit -v and ulimit -u")
    elif isinstance(exc, FileNotFoundError) and exc.filename is None and not _has_current_folder():
        error = SegmentationError(f"{name}the current folder is gone; change to another")
    elif isinstance(exc, OSError):
        error = SegmentationError(f"{exc.filename or source or 'a file'}: {exc.strerror or one_line(exc)}")
    else:
        error = InternalError(f"{name}internal error ({type(exc).__name__}: {one_line(exc)}); -v shows where")
    error.__cause__ = exc
    return error


def _has_current_folder() -> bool:
    """Returns whether the process's current folder still exists: relative names lead nowhere without it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def is_exhausted(exc: BaseException) -> bool:
    """Returns whether an exception says that memory or threads are used up. FFmpeg has EAGAIN for the latter."""
    return isinstance(exc, MemoryError | BlockingIOError) or any(text in str(exc).lower() for text in _EXHAUSTED)


def _is_file_limit(exc: BaseException) -> bool:
    """Returns whether an exception says that no file descriptor is left. ONNX Runtime quotes the error's number."""
    number = exc.errno if isinstance(exc, OSError) else None
    return number in (errno.EMFILE, errno.ENFILE) or f"system error number {errno.EMFILE}" in str(exc)


def causes(exc: BaseException | None) -> Iterator[BaseException]:
    """Yields an exception and all behind it, each once: a caller's `raise exc from exc` is its own cause."""
    seen: list[BaseException] = []
    while exc is not None and exc not in seen:
        seen.append(exc)
        yield exc
        exc = exc.__cause__ or exc.__context__


def one_line(error: BaseException | str) -> str:
    """Quotes a foreign error in one line of at most 200 characters: the system's or FFmpeg's words, else its text."""
    text = error if isinstance(error, str) else getattr(error, "strerror", None) or str(error) or type(error).__name__
    line = " ".join(str(text).split())
    return line if len(line) <= 200 else line[:200] + "..."


def check_keywords(given: Iterable[str], known: Collection[str], call: str, session: Collection[str] = ()) -> None:
    """Raises `TypeError` for the first keyword that `call` does not take, and says where those of `session` belong."""
    for name in sorted(set(given) - set(known)):
        if name in session:
            raise TypeError(f"{name}: belongs to the whole session, not to {call}; give it where the session is made")
        raise TypeError(f"{name}: is no option of {call}{did_you_mean(name, {*known, *session})}")


def counted(count: object, what: str) -> str:
    """Returns a number with the word for it: 1 frame, 2 frames."""
    return f"{count} {what}{'s' * (count != 1)}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns `; did you mean NAME?` for the one of `known` that `given` begins or nearly is, empty if there is none.

    Names that differ in their digits alone are different things: h265 is no misspelt h264.
    """
    text, names = given.lower(), {name.lower(): name for name in known}
    if given in names.values():
        return ""
    begun = [name for name in names if text and name.startswith(text)]
    near = begun if len(begun) == 1 else get_close_matches(text, names, n=len(names) or 1, cutoff=0.7)
    shape = re.sub(r"\d+", "0", text)
    near = [name for name in near if name == text or re.sub(r"\d+", "0", name) != shape]
    return f"; did you mean {names[near[0]]}?" if near else ""


def printable(text: str) -> str:
    """Returns `text` for a terminal: control characters as escapes such as `\\x1b`, secrets in addresses as `***`."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), hide_secrets(text))


def hide_secrets(text: str) -> str:
    """Returns `text` with `***` for user and password, and for each value of the query, in addresses but `file:`."""
    text = _ADDRESS.sub(_without_secrets, text)
    for pattern in _TYPED_WRONG:
        text = pattern.sub(r"\1***@", text)
    return text


def _without_secrets(address: re.Match[str]) -> str:
    scheme, user, place, query = address.groups()
    if scheme.lower() == "file://":
        return address[0]
    values = re.sub(r"([?#&;])([^=#&;]*=)?[^#&;]*", r"\1\2***", query or "")
    place = _IN_PATH.sub(r"\1***", place)
    return f"{scheme}{'***@' if user else ''}{place}{values}"
