"""Becomes another program that ends with its parent: `python tether.py PARENT_PID PROGRAM ARG...`.

Run as a file, without site-packages; imports nothing of ours.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; survives execv


def main(parent: int, command: list[str]) -> None:
    if sys.platform.startswith("linux"):
        # SIGTERM, not SIGKILL: a peer then says goodbye, and ends its trainer
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we asked
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - the launcher's own command, no shell


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
