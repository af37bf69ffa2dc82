"""Which tensors are on this host already, by digest: what need not be sent again.

Whoever writes into a source must drop it first. Knows mapped memory, no file and no network.
"""

from collections.abc import Iterable

from protocol.wire.layout import Place

__all__ = ["Holdings"]


class Holdings:
    """Sources are receive buffers and the bodies of what this node itself has published."""

    def __init__(self) -> None:
        self._views: dict[str, memoryview] = {}
        self._places: dict[str, dict[bytes, Place]] = {}  # by source: what lies where
        self._sources: dict[bytes, list[str]] = {}  # by digest, oldest first

    def add(self, source: str, view: memoryview, tensors: Iterable[tuple[bytes, Place]]) -> None:
        """Note that a source holds tensors of these digests at these places; replaces it."""
        self.drop(source)
        self._views[source] = view
        places = self._places[source] = dict(tensors)
        for digest in places:
            self._sources.setdefault(digest, []).append(source)

    def drop(self, source: str) -> None:
        """Its bytes are to change, or it is gone."""
        self._views.pop(source, None)
        for digest in self._places.pop(source, ()):
            self._sources[digest].remove(source)
            if not self._sources[digest]:
                del self._sources[digest]

    def forget(self, digest: bytes) -> None:
        """What was found under this digest does not have it: believe none of them."""
        for source in self._sources.pop(digest, ()):
            del self._places[source][digest]

    def places(self, source: str) -> dict[bytes, Place]:
        """What a source holds, and where."""
        return self._places.get(source, {})

    def find(self, digest: bytes, num_bytes: int, *, besides: str) -> memoryview | None:
        """The bytes of this digest, wherever they are but in `besides`."""
        for source in self._sources.get(digest, ()):
            place = self._places[source][digest]
            if source != besides and place.end - place.start == num_bytes:
                return self._views[source][place.start : place.end]
        return None
