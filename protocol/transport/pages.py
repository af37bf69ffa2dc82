"""What the C library does with the pages of frames that were read: keep them for others."""

import ctypes

from protocol.wire.messages import MAX_PIECE_BYTES

__all__ = ["keep_frame_pages"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT_BYTES = 12 * MAX_PIECE_BYTES  # a window of pieces, and what is decrypted of them
_FROM_THE_HEAP_BYTES = 2 * MAX_PIECE_BYTES


def keep_frame_pages() -> bool:
    """Have glibc keep the pages of a few pieces when they are freed; of the whole process.

    libzmq allocates each frame anew. Returning its pages to the system and getting others, zeroed,
    for the next one takes the thread that receives a third of its time without encryption. What is
    kept is at most KEPT_BYTES for each of libzmq's threads.

    Returns:
        Whether there is a glibc to be told; other C libraries keep or return pages as they do.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _FROM_THE_HEAP_BYTES)
    )
