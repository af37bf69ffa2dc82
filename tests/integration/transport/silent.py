"""Strangers that connect and say nothing: python -m tests.integration.transport.silent PORT COUNT.

Tells how many connections it made, and keeps them until its input ends.
"""

import resource
import socket
import sys
from contextlib import suppress


def main(port: str, count: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = []
    for _ in range(int(count)):
        with suppress(OSError):
            made.append(socket.create_connection(("127.0.0.1", int(port)), 20))
    sys.stdout.write(f"{len(made)}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
