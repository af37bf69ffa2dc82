"""Hashing behind the frontier: in order, and never after it was told to stop."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from peer.dataplane.checking import Checker, Telling, Verdicts
from protocol.wire.digest import digest
from protocol.wire.layout import Place
from protocol.wire.pulling import Verify

BODY = bytes(range(200))


class Later(Executor):
    """Runs nothing until it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], Any]] = []

    def submit(self, job: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs.append(job)
        return Future()

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def rig(
    body: bytes = BODY, *, at_once_bytes: int = 0
) -> tuple[Checker, Later, list[Verdicts], bytearray]:
    told: list[Verdicts] = []
    later, buffer = Later(), bytearray(body)
    checker = Checker(
        memoryview(buffer), executor=later, tell=told.append, at_once_bytes=at_once_bytes
    )
    return checker, later, told, buffer


def part(tensor: int, start: int, end: int, *, whole: bytes, is_last: bool = True) -> Verify:
    return Verify(tensor, Place(start, end), digest(whole), is_last)


def test_parts_of_a_tensor_make_one_digest_and_only_the_last_is_told() -> None:
    checker, later, told, _ = rig()
    checker.verify([part(0, 0, 70, whole=BODY[:128], is_last=False)])
    later.run()
    assert told == []
    checker.verify([part(0, 70, 128, whole=BODY[:128]), part(1, 128, 200, whole=b"other")])
    later.run()
    assert told == [[(0, True), (1, False)]]


def test_one_job_at_a_time_does_all_there_is() -> None:
    checker, later, told, _ = rig()
    for number in range(3):
        checker.verify([part(number, 0, 10, whole=BODY[:10])])
    assert len(later.jobs) == 1
    later.run()
    assert told == [[(0, True), (1, True), (2, True)]]


def test_bytes_held_elsewhere_are_brought_before_they_are_hashed() -> None:
    checker, later, told, buffer = rig(bytes(200))
    checker.copy([(Place(64, 164), memoryview(BODY)[:100])])
    checker.verify([part(0, 64, 164, whole=BODY[:100])])
    later.run()
    assert told == [[(0, True)]]
    assert buffer == bytes(64) + BODY[:100] + bytes(36)


def test_what_is_small_is_hashed_at_once() -> None:
    checker, later, told, _ = rig(at_once_bytes=100)
    checker.verify([part(0, 0, 60, whole=BODY[:100], is_last=False)])
    checker.verify([part(0, 60, 100, whole=BODY[:100]), part(1, 100, 160, whole=b"other")])
    assert told == [[(0, True), (1, False)]]
    assert later.jobs == []


def test_what_is_large_and_what_comes_behind_it_wait_their_turn() -> None:
    checker, later, told, _ = rig(at_once_bytes=100)
    checker.verify([part(0, 0, 101, whole=BODY[:120], is_last=False)])
    checker.verify([part(0, 101, 120, whole=BODY[:120])])
    assert told == []
    later.run()
    assert told == [[(0, True)]]
    checker.verify([part(1, 120, 200, whole=BODY[120:])])
    assert told == [[(0, True)], [(1, True)]]
    assert later.jobs == []


def test_a_closed_checker_hashes_nothing_at_once_either() -> None:
    checker, later, told, _ = rig(at_once_bytes=100)
    checker.close()
    checker.verify([part(0, 0, 10, whole=BODY[:10])])
    assert (told, later.jobs) == ([], [])


def test_a_closed_checker_touches_the_body_no_more() -> None:
    checker, later, told, buffer = rig(bytes(200))
    checker.copy([(Place(0, 100), memoryview(BODY)[:100])])
    checker.close()
    later.run()
    assert buffer == bytes(200)
    assert told == []


def test_an_error_in_a_thread_of_the_hashers_is_told() -> None:
    told: list[BaseException] = []
    done: list[str] = []

    def work() -> None:
        done.append("work")
        raise IndexError("a bug")

    with ThreadPoolExecutor(1) as pool:
        Telling(pool, told.append).submit(work)
        Telling(pool, told.append).submit(lambda: done.append("more"))
    assert done == ["work", "more"]
    assert [str(error) for error in told] == ["a bug"]
