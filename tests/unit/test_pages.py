"""The pages of a frame that was read are there for the next one: seen in page faults of a child."""

import subprocess
import sys

import pytest

from protocol.transport.pages import keep_frame_pages

ROUNDS = 50
PIECES = 4  # of 1 MiB, allocated, written and freed in each round, as libzmq does
PAGES_OF_A_ROUND = PIECES * 256
FREEING = f"""
import ctypes, resource, sys
from protocol.transport.pages import keep_frame_pages
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
if sys.argv[1] == "keep":
    assert keep_frame_pages()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    pieces = [libc.malloc(1 << 20) for _ in range({PIECES})]
    for piece in pieces:
        libc.memset(piece, 1, 1 << 20)
    for piece in pieces:
        libc.free(piece)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    child = [sys.executable, "-c", FREEING, how]
    return int(subprocess.run(child, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not keep_frame_pages(), reason="this C library is not glibc")
def test_pages_of_freed_frames_are_used_again() -> None:
    returned, kept = faults("as it is"), faults("keep")
    assert returned > ROUNDS * PAGES_OF_A_ROUND // 4
    assert kept < 3 * PAGES_OF_A_ROUND
