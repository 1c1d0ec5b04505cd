import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is something to finish, Ctrl-C just ends it

from segmentation.cli.main import main

sys.exit(main())
