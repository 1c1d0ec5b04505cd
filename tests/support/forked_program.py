"""A Python program in a process that has the libraries already, as `segmentation.system.fork_server` makes it.

It runs as `python PROGRAM` does, from its first line to its end, but spends no second on imports.
"""

import atexit
import json
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path

_BEFORE = dict(os.environ)

import segmentation.cli.main  # noqa: E402, F401

_SET_BY_IMPORTS = {name: value for name, value in os.environ.items() if name not in _BEFORE}


def main() -> None:
    """Runs the program that the environment names, a file or a module, and ends the process as Python would."""
    (program, *arguments), folder, environment = json.loads(os.environ["TESTS_REQUEST"])
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(_SET_BY_IMPORTS | environment)
    sys.argv = [program, *arguments]
    code: object = 0
    try:
        if program.endswith(".py"):
            sys.path.insert(0, str(Path(program).parent))
            runpy.run_path(program, run_name="__main__")
        else:
            sys.path.insert(0, folder)
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as exc:
        code = exc.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # waits for the threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
