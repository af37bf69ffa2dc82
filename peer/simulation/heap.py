"""What glibc keeps of memory that was freed. Elsewhere than with glibc nothing is changed."""

import ctypes
import gc

__all__ = ["give_back", "own_pages"]

_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
_OWN_PAGES_BYTES = 1 << 16


def own_pages() -> None:
    """Have tensors get pages of their own, which go back to the system once they are freed.

    Otherwise each peer's result lies among holes that its training has left.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)


def give_back() -> None:
    """Give the system what was freed and lies between what is in use."""
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
