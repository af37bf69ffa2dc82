"""Child processes of a benchmark, and what a process knows of its own memory and CPU."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

__all__ = ["Meter", "Reading", "running", "tell"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process has used since its meter was reset."""

    extra_bytes: int  # peak of resident memory above what it was then
    cpu_s: float


class Meter:
    """Of this process. Linux alone: /proc, and the reset of the peak of resident memory."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM
        self._resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
        self._cpu_s = time.process_time()

    def read(self) -> Reading:
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        peak = int(status["VmHWM"].split()[0]) * 1024
        return Reading(max(0, peak - self._resident), time.process_time() - self._cpu_s)


def tell(seconds: float, *, sender: Reading, receiver: Reading) -> None:
    """Print what bringing a body over took, as a line of JSON."""
    found = {
        "seconds": seconds,
        "receiver_extra_bytes": receiver.extra_bytes,
        "sender_extra_bytes": sender.extra_bytes,
        "cpu_s": sender.cpu_s + receiver.cpu_s,
    }
    print(json.dumps(found), flush=True)


@contextmanager
def running(target: object, *args: object) -> Iterator[tuple[Connection, int]]:
    """A child process and a pipe to it; it is ended whatever happens."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(theirs, *args))  # type: ignore[arg-type]  # a function
    child.start()
    theirs.close()
    try:
        yield ours, int(child.pid or 0)
    finally:
        ours.close()
        child.kill()
        child.join()
