"""A line that holds frames up: delay.py SWITCH PORT DELAY_S JITTER_S SEED, run inside a host.

For kernels without netem. It makes `eth0` here and PORT in the switch's namespace, both taps, and
carries every frame from one to the other when its time has come, in order. Both go with it.
"""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import sys
import time
from itertools import count
from pathlib import Path
from random import Random

_TUNSETIFF = 0x400454CA  # linux/if_tun.h
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000  # linux/sched.h
FRAME_BYTES = 65536
MAX_HELD = 10_000  # frames; more are dropped, as any queue does


def tap(name: str) -> int:
    """Make a tap in the namespace of this process."""
    made = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(made, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return made


def move_to(namespace: str) -> None:
    with (Path("/run/netns") / namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def carry(one: int, other: int, *, delay_s: float, jitter_s: float, chance: Random) -> None:
    """Carry frames both ways, for ever."""
    towards = {one: other, other: one}
    last_s = {one: 0.0, other: 0.0}  # of each direction, by where it comes from
    held: list[tuple[float, int, int, bytes]] = []
    numbers = count()
    while True:
        now_s = time.monotonic()
        while held and held[0][0] <= now_s:
            _, _, to, frame = heapq.heappop(held)
            try:
                os.write(to, frame)
            except OSError:
                continue  # the other end is down, or full
        wait_s = None if not held else max(0.0, held[0][0] - time.monotonic())
        for source in select.select([one, other], [], [], wait_s)[0]:
            try:
                frame = os.read(source, FRAME_BYTES)
            except OSError:
                continue
            drawn_s = chance.uniform(0.0, jitter_s)
            due_s = max(last_s[source], time.monotonic() + delay_s + drawn_s)
            last_s[source] = due_s
            if len(held) < MAX_HELD:
                heapq.heappush(held, (due_s, next(numbers), towards[source], frame))


def main(switch: str, port: str, delay_s: float, jitter_s: float, seed: int) -> None:
    here = tap("eth0")
    move_to(switch)
    there = tap(port)
    print("ready", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever has started it may go
    carry(here, there, delay_s=delay_s, jitter_s=jitter_s, chance=Random(seed))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
