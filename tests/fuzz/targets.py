"""Every target by name: a function of bytes that returns, or has found something.

`python -m tests.fuzz.run` feeds them; `test_corpus.py` replays what was worth keeping.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from tests.fuzz.coded import coded, steps
from tests.fuzz.conversations import directory, link, membership
from tests.fuzz.files import journals, texts
from tests.fuzz.speech import documents, messages
from tests.fuzz.transfers import desk, pull

__all__ = ["TARGETS"]

TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = MappingProxyType(
    {
        "messages": messages,
        "documents": documents,
        "pull": pull,
        "desk": desk,
        "link": link,
        "membership": membership,
        "directory": directory,
        "journals": journals,
        "texts": texts,
        "coded": coded,
        "steps": steps,
    }
)
