"""Simulated trainers in processes of their own: how many changes nothing but the time it takes.

Each peer belongs to one worker, by the order in which peers are first heard of. Answers of a worker
come in the order of its commands; a thread for each takes them in, so that neither side ever waits
for the other to read.

From TRAIN to EVALUATE a peer holds two models, and all peers may be there at one instant of virtual
time. So a worker is sent a few orders to train in advance, and one more for each peer that is to be
evaluated; what is asked for before its turn is sent at once.
"""

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Lock, Thread

from peer.simulation.engine import Pending
from peer.simulation.frames import Frames
from peer.trainer_process import NOT_FOR_IT, blocked
from peer.work import WORK, Command, Evaluate, Reply, Train
from protocol.errors import KinfolkError, LocalProtocolError
from protocol.ids import PeerId

__all__ = ["WorkerLost", "Workers"]

AHEAD = 8  # peers of a worker that are trained and not evaluated, so that it never idles
QUIT_S = 5.0  # for a worker to end by itself, before it is ended
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class WorkerLost(KinfolkError):  # noqa: N818 - what it is, not what was raised
    """A process of the simulation has ended before its time."""


class Workers:
    """Trainers in `count` processes; close it to end them."""

    def __init__(self, count: int) -> None:
        """Start them all at once: each takes seconds to load torch.

        Args:
            count: >= 1.
        """
        self._workers: list[_Worker] = []
        self._of: dict[PeerId, _Worker] = {}
        self._last: dict[PeerId, Future[Reply]] = {}  # of each peer's commands
        try:
            for _ in range(count):
                self._workers.append(_Worker())
        except OSError:
            self.close()
            raise

    def submit(self, peer: PeerId, command: Command) -> Pending:
        if peer not in self._of:
            self._of[peer] = self._workers[len(self._of) % len(self._workers)]
        worker = self._of[peer]
        future = self._last[peer] = worker.submit(peer, command)

        def answer() -> Reply:
            worker.hurry(peer, future)
            return future.result()

        return answer

    def forget(self, peer: PeerId) -> None:
        if peer in self._last:  # it stays where it is: it may come back
            last = self._last.pop(peer)
            self._of[peer].hurry(peer, last)
            wait([last])  # and finds on disk what it had begun, whatever the speed
            self._of[peer].forget(peer)

    def close(self) -> None:
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.close()
        self._workers.clear()


class _Worker:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._frames = Frames(ours)
        with theirs, blocked(NOT_FOR_IT):
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "peer.simulation.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
            )
        self._lock = Lock()  # of what is open
        self._open: deque[Future[Reply]] = deque()  # commands without an answer yet, in order
        self._is_lost = False
        self._held: dict[PeerId, list[tuple[Command, Future[Reply]]]] = {}  # not sent yet
        self._two_models: set[PeerId] = set()  # told to train, and not to evaluate yet
        self._ahead = AHEAD
        self._reader = Thread(target=self._read, name="simulation worker")
        self._reader.start()

    def submit(self, peer: PeerId, command: Command) -> Future[Reply]:
        future: Future[Reply] = Future()
        is_full = isinstance(command, Train) and len(self._two_models) >= self._ahead
        if peer in self._held or is_full:
            self._held.setdefault(peer, []).append((command, future))
        else:
            self._send(peer, command, future)
        return future

    def hurry(self, peer: PeerId, future: Future[Reply]) -> None:
        """The answer is needed now: send what was held of this peer.

        Where peers take turns of different lengths, more of them are under way from then on.
        """
        if not future.done() and peer in self._held:
            self._ahead += 1
            self._release(peer)

    def _release(self, peer: PeerId) -> None:
        for command, future in self._held.pop(peer):
            self._send(peer, command, future)

    def _send(self, peer: PeerId, command: Command, future: Future[Reply]) -> None:
        with self._lock:
            if self._is_lost:
                raise WorkerLost(self._last_words())
            self._open.append(future)
        with suppress(BrokenPipeError, ConnectionResetError):  # the reader hears of its end
            self._frames.send(peer.encode(), WORK.encode(command))
        if isinstance(command, Train):
            self._two_models.add(peer)
        elif isinstance(command, Evaluate):
            self._has_one_model(peer)

    def _has_one_model(self, peer: PeerId) -> None:
        self._two_models.discard(peer)
        if self._held and len(self._two_models) < self._ahead:
            self._release(next(iter(self._held)))

    def forget(self, peer: PeerId) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._frames.send(peer.encode(), b"")
        self._has_one_model(peer)

    def hang_up(self) -> None:
        """Have it end by itself."""
        self._frames.end()

    def close(self) -> None:
        try:
            self._process.wait(QUIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._frames.close()

    def _read(self) -> None:
        while (frame := self._frames.receive()) is not None:
            reply = WORK.decode(frame[1])
            with self._lock:
                future = self._open.popleft()
            if isinstance(reply, Reply):
                future.set_result(reply)
            else:
                future.set_exception(LocalProtocolError(f"{type(reply).__name__} is no answer"))
        with self._lock:
            self._is_lost = True
            left = tuple(self._open)
        for future in left:
            future.set_exception(WorkerLost(self._last_words()))

    def _last_words(self) -> str:
        code = self._process.wait()
        how = f"exit code {code}"
        if code < 0:
            out = ": is the memory used up?" if -code == signal.SIGKILL else ""
            how = f"killed by {signal.Signals(-code).name}{out}"
        return f"a worker of the simulation has ended: {how}"
