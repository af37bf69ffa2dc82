"""A coordinator that knows nobody: prints a join string and waits, as FAKE_COORDINATOR says."""

import os
import signal
import sys

match os.environ.get("FAKE_COORDINATOR", ""):
    case "refuses":
        sys.stderr.write("Error: port 7733 is in use\n  choose another with --bind\n")
        sys.exit(2)
    case "dies":
        sys.stdout.write("join-string\n")
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    case _:
        sys.stdout.write("join-string\n")
        sys.stdout.flush()
        signal.pause()
