"""What a person may have meant by a word that nobody knows: hints of errors."""

from collections.abc import Collection
from difflib import get_close_matches

__all__ = ["did_you_mean", "of_all"]


def did_you_mean(word: str, known: Collection[str], *, most: int = 3, cutoff: float = 0.6) -> str:
    """Ask for words that are like it, the nearest first; empty where none is.

    Args:
        word: as typed.
        known: what would have been understood.
        most: words to name, >= 1.
        cutoff: how like they must be, in [0, 1] (`difflib.get_close_matches`).
    """
    close = get_close_matches(word, known, n=most, cutoff=cutoff)
    return f"did you mean {' or '.join(close)}?" if close else ""


def of_all(word: str, known: Collection[str], *, most: int = 3) -> str:
    """The same question, where there is one, and then all that is known."""
    return f"{did_you_mean(word, known, most=most)} there are: {', '.join(known)}".lstrip()
