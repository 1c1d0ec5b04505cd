"""Runs the command line."""

import signal

# While libraries are imported there is nothing to finish: Ctrl-C ends the process, without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from segmentation.cli.main import command

command()
