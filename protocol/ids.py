"""Names of things that cross the wire. No behaviour beyond checking a name."""

import re
from typing import NewType

from protocol.errors import ConfigError

__all__ = ["MAX_NAME_CHARS", "PeerId", "RunId", "peer_id"]

PeerId = NewType("PeerId", str)  # a node's name: unique in its run, bound to its key
RunId = NewType("RunId", bytes)  # 16 random bytes, made by the coordinator of the run

MAX_NAME_CHARS = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


def peer_id(name: str) -> PeerId:
    """Check a name that a person typed.

    Raises:
        ConfigError: it is empty, too long, or has a character that a file name may not have.
    """
    if len(name) > MAX_NAME_CHARS or not _NAME.match(name):
        raise ConfigError(
            f"name {name!r} cannot be used: 1 to {MAX_NAME_CHARS} of letters, digits, '.', '_', "
            "'-', starting with a letter or digit"
        )
    return PeerId(name)
