"""Takes from a process what Windows or macOS lack, before the program starts: the folder goes to `PYTHONPATH`.

`BARE_SYSTEM` names the system; `no-proc` is Linux without `/proc`, as in a plain chroot. Windows' own ways are not
here, such as files that can't be renamed while they are open.
"""

import builtins
import ctypes
import io
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

_NOT_ON_MACOS = {
    os: "memfd_create sched_getaffinity sched_setaffinity sched_getscheduler sched_getparam sched_setscheduler".split()
}
_NOT_ON_WINDOWS = {
    os: [
        *"O_NOFOLLOW O_NONBLOCK O_CLOEXEC O_DIRECTORY fchown fchmod chown geteuid sysconf".split(),
        *"mkfifo killpg getpgid setsid".split(),
    ],
    signal: ["SIGHUP", "SIGKILL", "SIGPIPE", "pthread_sigmask"],
    select: ["poll", "epoll"],
    socket: ["AF_UNIX"],
}


def _without_proc(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def checked(path: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return function(path, *arguments, **named)

    return checked


def _without_folders(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        if any(value is not None for name, value in named.items() if name.endswith("dir_fd")):
            raise NotImplementedError("dir_fd unavailable on this platform")
        if function is _open and os.path.isdir(arguments[0]):
            raise PermissionError(13, "Permission denied", arguments[0])
        return function(*arguments, **named)

    return checked


def _no_process_library(name: object, *arguments: Any, **named: Any) -> Any:
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    return _library(name, *arguments, **named)


_open, _library = os.open, ctypes.CDLL
builtins.open = io.open = _without_proc(open)
for _name in ("stat", "lstat", "listdir", "scandir", "readlink"):
    setattr(os, _name, _without_proc(getattr(os, _name)))
_missing = {} if os.environ["BARE_SYSTEM"] == "no-proc" else dict(_NOT_ON_MACOS)
if os.environ["BARE_SYSTEM"] == "windows":
    for _module, _names in _NOT_ON_WINDOWS.items():
        _missing[_module] = [*_missing.get(_module, ()), *_names]
    for _name in ("fcntl", "resource", "termios", "pwd", "grp"):
        sys.modules[_name] = None  # type: ignore[assignment]
    for _name in ("open", "link", "unlink", "replace"):
        setattr(os, _name, _without_folders(getattr(os, _name)))
    ctypes.CDLL = _no_process_library  # type: ignore[assignment,misc]
for _module, _names in _missing.items():
    for _name in _names:
        if hasattr(_module, _name):
            delattr(_module, _name)
