"""A worker of a simulation: trainers of many peers, told over a socket pair what to do.

Run as `python -m peer.simulation.worker FD`; it lives as long as the simulation.
"""

import os
import socket
import sys

from peer.lifeline import die_with_parent
from peer.simulation.frames import Frames
from peer.simulation.here import InProcess, one_thread
from peer.work import WORK, Command
from protocol.ids import PeerId

__all__ = ["main"]


def main(fd: int) -> None:
    """Answer every command, in order, until the simulation hangs up."""
    die_with_parent()
    frames, engine = Frames(socket.socket(fileno=fd)), InProcess()
    with one_thread():
        while (frame := frames.receive()) is not None:
            peer = PeerId(frame[0].decode())
            if not frame[1]:
                engine.forget(peer)
                continue
            command = WORK.decode(frame[1])
            if not isinstance(command, Command):
                raise TypeError(f"{type(command).__name__} is not a command")
            try:
                frames.send(frame[0], WORK.encode(engine.submit(peer, command)()))
            except BrokenPipeError:
                return


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)  # all is on disk, and an interpreter takes a second to take torch apart
