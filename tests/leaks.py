"""What a test must leave as it found it: threads, open files, child processes.

from tests.leaks import no_leaks  # noqa: F401 - a fixture

@pytest.mark.usefixtures("no_leaks")
def test_...
"""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from select import select
from threading import enumerate as threads

import psutil
import pytest
import zmq

from protocol.clock import MonotonicClock

__all__ = ["Census", "census", "no_leaks"]


WITHIN_S = 5.0  # a bound: only a leak waits so long


@dataclass(frozen=True)
class Census:
    threads: tuple[str, ...]
    files: tuple[str, ...]
    children: tuple[int, ...]


def census() -> Census:
    """Count what is there now, after what is unreachable has gone."""
    gc.collect()
    files = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            name = str(link.readlink()).split(":")[0]  # socket:[1234] -> socket
        except FileNotFoundError:
            continue  # the one that reads the folder
        if not name.endswith(".ttf"):  # matplotlib keeps the fonts that it has drawn with
            files.append(name)
    return Census(
        threads=tuple(sorted(thread.name for thread in threads())),
        files=tuple(sorted(files)),
        children=tuple(sorted(child.pid for child in psutil.Process().children(recursive=True))),
    )


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Compare before and after."""
    _warm_up()
    before = census()
    gc.freeze()  # what is there now is not looked at again: torch alone takes 0.15 s each time
    yield
    clock = MonotonicClock()
    until_s = clock.now_s() + WITHIN_S
    while (after := census()) != before and clock.now_s() < until_s:
        select((), (), (), 0.005)  # a thread of pyzmq's lets go of mapped files that were sent
    assert after == before, f"{after} was {before}"


def _warm_up() -> None:
    """Start what pyzmq starts once for a process: the thread that frees buffers sent uncopied."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as two:
        one.bind("inproc://warm-up")
        two.connect("inproc://warm-up")
        one.send(bytes(1 << 20), copy=False)
        two.recv()
