"""Topologies: who is whose neighbour, a pure function of (roster, topology, seed).

Every peer computes the same graph by itself, whatever the order of its roster. Links are mutual,
nobody is its own neighbour, and the graph is in one piece.

| spec | links | where the roster does not allow it |
| --- | --- | --- |
| `full` | everybody with everybody | |
| `ring` | in the order of the names | two peers are one link, one peer is alone |
| `torus` | four each, on the grid nearest to a square | below five peers a ring |
| `k-regular:k` | k each, at random | k is cut to n - 1; where k n is odd, one fewer each |
| `small-world:k,p` | a ring of k each, links moved with probability p | `full` from k = n - 1 up |
| `star` | everybody with the first name | |
| `file:PATH` | a line `a b` for each | what fell apart is chained by its first names |

`Topology.check` holds a configuration to the letter; `Topology.graph` takes the last column's way
out instead, because a run must not die of a peer that left.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import floor
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from protocol.errors import ConfigError, LocalProtocolError
from protocol.ids import PeerId, peer_id
from protocol.shapes import (
    Full,
    Link,
    Listed,
    Regular,
    Ring,
    Shape,
    SmallWorld,
    Star,
    Torus,
    joined,
    pieces,
    shuffled,
)
from protocol.suggest import did_you_mean

__all__ = [
    "DEFAULT_TOPOLOGY",
    "Graph",
    "Topology",
    "active",
    "check_carried",
    "check_participation",
    "neighbours",
    "parse_topology",
]

Graph: TypeAlias = Mapping[PeerId, tuple[PeerId, ...]]  # both in order of name

DEFAULT_TOPOLOGY = "full"
MAX_SPEC_CHARS = 500  # of one option of the run's manifest
MAX_FILE_BYTES = 1 << 20

SPECS = ("full", "ring", "torus", "k-regular:k", "small-world:k,p", "star", "file:PATH")


@dataclass(frozen=True, slots=True)
class Topology:
    """A parsed spec.

    Attributes:
        spec: in the form that a manifest carries. A short file of links becomes `edges:a b,b c`,
            which needs no file; a long one `file:PATH#DIGEST`, refused where the file differs.
        shape: how it links a roster.
    """

    spec: str
    shape: Shape

    def check(self, num_peers: int) -> None:
        """Refuse a number of peers that cannot be linked to the letter.

        Raises:
            ConfigError: with the reason.
        """
        reason = self.shape.misfit(num_peers)
        if reason:
            raise ConfigError(f"topology {self.spec} does not fit {num_peers} peers: {reason}")

    def check_names(self, roster: Iterable[PeerId]) -> None:
        """Check the number, and the names in a file of links, where all peers are known.

        Raises:
            ConfigError: with the reason, or the names that only one of the two has.
        """
        present = frozenset(roster)
        if isinstance(self.shape, Listed):
            for lone, fault in (
                (self.shape.names - present, "not a peer of this run"),
                (present - self.shape.names, "without a link"),
            ):
                if lone:
                    raise ConfigError(
                        f"topology {self.spec}: {', '.join(sorted(lone))}: {fault}",
                        hint=f"the peers are {', '.join(sorted(present))}",
                    )
        self.check(len(present))

    def graph(self, roster: Iterable[PeerId], seed: int) -> Graph:
        """Link everybody in the roster. Never refuses: see the table at the head of this file."""
        return _graph(self.shape, tuple(sorted(set(roster))), seed)


@lru_cache(maxsize=16)  # a simulation asks once for each of its peers
def _graph(shape: Shape, order: tuple[PeerId, ...], seed: int) -> Graph:
    links = shape.links(order, seed) if len(order) > 1 else ()
    adjacent = joined(order, links)
    return MappingProxyType({peer: tuple(sorted(adjacent[peer])) for peer in order})


def neighbours(graph: Graph, peer: PeerId) -> tuple[PeerId, ...]:
    """The peers that `peer` pulls from, in order of name.

    Raises:
        LocalProtocolError: the graph was made of a roster without that peer.
    """
    if peer not in graph:
        raise LocalProtocolError(f"{peer} is not in a graph of {', '.join(graph) or 'nobody'}")
    return graph[peer]


# -- participation --------------------------------------------------------------------------


def check_participation(share: float) -> float:
    """Return the share of peers that is active in a round, when it can be one.

    Raises:
        ConfigError: it is not in (0, 1].
    """
    if not 0.0 < share <= 1.0:  # written so that NaN is refused too
        raise ConfigError(
            f"participation must be above 0 and at most 1, got {share}", hint="1 is everybody"
        )
    return share


def active(
    roster: Iterable[PeerId], participation: float, seed: int, round_no: int
) -> tuple[PeerId, ...]:
    """Draw who takes part in a round: the number nearest to the share, but at least one peer.

    Returns:
        Names in order, the same on every peer.

    Raises:
        ConfigError: the share is not in (0, 1].
    """
    drawn = shuffled(set(roster), seed, "active", round_no)
    num_active = max(1, floor(check_participation(participation) * len(drawn) + 0.5))
    return tuple(sorted(drawn[:num_active]))


# -- parsing --------------------------------------------------------------------------------


def parse_topology(spec: str) -> Topology:
    """Read what a person typed, or what a manifest carries. Reads the file of `file:PATH`.

    Raises:
        ConfigError: with what was seen, what is allowed and what comes close.
    """
    kind, _, rest = (part.strip() for part in spec.partition(":"))
    parse = _PARSERS.get(kind)
    if parse is None:
        question = did_you_mean(kind.lower(), _PARSERS, most=1)
        hint = f"{question} it is one of {'  '.join(SPECS)}".lstrip()
        raise ConfigError(f"there is no topology {spec!r}", hint=hint)
    return parse(kind, rest)


def check_carried(spec: str) -> None:
    """Refuse what a manifest cannot carry: a file of one host, without the digest of its links.

    Raises:
        ConfigError: as it says.
    """
    kind, _, rest = (part.strip() for part in spec.partition(":"))
    if kind == "file" and not _CHECKED_PATH.fullmatch(rest):
        raise ConfigError(
            f"run.topology = {spec:.80} names a file that other hosts do not have",
            hint="give it with --topology to the peer that starts the run, or in an experiment "
            "file: its links then travel with the run",
        )


def _plain(shape: Shape) -> Callable[[str, str], Topology]:
    def parse(kind: str, rest: str) -> Topology:
        if rest:
            raise ConfigError(f"topology {kind} takes nothing after it, got {rest!r}")
        return Topology(kind, shape)

    return parse


def _regular(kind: str, rest: str) -> Topology:
    degree = _degree(kind, rest, example="k-regular:4")
    return Topology(f"{kind}:{degree}", Regular(degree))


def _small_world(kind: str, rest: str) -> Topology:
    example = "small-world:4,0.1"
    first, _, second = rest.partition(",")
    degree = _degree(kind, first, example=example)
    if degree % 2:
        raise ConfigError(f"k of {kind} must be even, got {degree}", hint=f"for example {example}")
    try:
        moved = float(second)
    except ValueError:
        moved = -1.0
    if not 0.0 <= moved <= 1.0:
        raise ConfigError(
            f"p of {kind} must be in [0, 1], got {second.strip()!r}", hint=f"for example {example}"
        )
    return Topology(f"{kind}:{degree},{moved}", SmallWorld(degree, moved))


def _degree(kind: str, text: str, *, example: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 6 and int(digits) >= 2):
        raise ConfigError(
            f"k of {kind} must be a whole number of at least 2, got {digits!r}",
            hint=f"for example {example}",
        )
    return int(digits)


def _edges(_kind: str, rest: str) -> Topology:
    links = _links(enumerate(rest.split(","), start=1), where="edges, link")
    return Topology(f"edges:{_written(links)}", Listed(links))


def _file(_kind: str, rest: str) -> Topology:
    checked = _CHECKED_PATH.fullmatch(rest)
    path, digest = checked.groups() if checked else (rest, "")
    if not path:
        raise ConfigError("topology file needs a path", hint="for example file:links.txt")
    if digest:
        return Topology(f"file:{path}#{digest}", Listed(_checked_links(path, digest)))
    links = _links(enumerate(_lines(Path(path)), start=1), where=f"{path} line")
    written = _written(links)
    seen = _digest_of(written)
    spec = f"edges:{written}"
    return Topology(spec if len(spec) <= MAX_SPEC_CHARS else f"file:{path}#{seen}", Listed(links))


def _checked_links(path: str, digest: str) -> tuple[Link, ...]:
    """Read the file that a manifest names. Somebody else chose the path, and hears the error.

    So nothing is opened that is no plain file, and nothing is told of what stands in it.
    """
    other = ConfigError(
        f"the links in {path} are not those of the run, whose digest is {digest}",
        hint="copy the file from where the run was started",
    )
    try:
        is_there = Path(path).is_file()
    except OSError:  # too long a name, or a folder that is not ours to look into
        is_there = False
    if not is_there:
        raise ConfigError(
            f"there is no file {path:.200} here, whose links the run has",
            hint="copy the file from where the run was started",
        )
    try:
        links = _links(enumerate(_lines(Path(path)), start=1), where="line")
    except ConfigError:
        raise other from None
    if _digest_of(_written(links)) != digest:
        raise other
    return links


def _digest_of(written: str) -> str:
    return blake2b(written.encode(), digest_size=8).hexdigest()


_CHECKED_PATH = re.compile(r"(.+)#([0-9a-f]{16})")

_PARSERS: Mapping[str, Callable[[str, str], Topology]] = {
    "full": _plain(Full()),
    "ring": _plain(Ring()),
    "torus": _plain(Torus()),
    "star": _plain(Star()),
    "k-regular": _regular,
    "small-world": _small_world,
    "file": _file,
    "edges": _edges,
}


def _written(links: Iterable[Link]) -> str:
    return ",".join(f"{one} {other}" for one, other in links)


def _lines(path: Path) -> list[str]:
    """The lines of a file of links, without their comments."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read the links of {path}: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or a path with a zero byte
        raise ConfigError(f"{str(path)!r} is not a text of links: {error}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} has more than {MAX_FILE_BYTES} bytes of links")
    return [line.partition("#")[0] for line in text.splitlines()]


def _links(lines: Iterable[tuple[int, str]], *, where: str) -> tuple[Link, ...]:
    """Read numbered lines `a b`, empty ones aside, into links in order of name."""
    numbers: dict[Link, int] = {}
    for number, line in lines:
        words = line.split()
        if not words:
            continue
        try:
            numbers.setdefault(_one_link(words), number)
        except ConfigError as error:
            raise ConfigError(f"{where} {number}: {error}") from error
    if not numbers:
        raise ConfigError(f"{where} 1: no link", hint="each line is two names, for example: p0 p1")
    _refuse_pieces(numbers, where=where)
    return tuple(sorted(numbers))


def _one_link(words: list[str]) -> Link:
    if len(words) != 2:
        raise ConfigError(f"a link is two names, got {' '.join(words)[:80]!r}")
    one, other = sorted(map(peer_id, words))
    if one == other:
        raise ConfigError(f"{one} is linked to itself")
    return one, other


def _refuse_pieces(numbers: Mapping[Link, int], *, where: str) -> None:
    names = dict.fromkeys(name for link in numbers for name in link)
    first, *others = pieces(joined(names, numbers))
    if others:
        lone = frozenset(others[0])
        number, link = next((number, link) for link, number in numbers.items() if link[0] in lone)
        raise ConfigError(
            f"{where} {number}: {' '.join(link)} is not connected to {first[0]} and its "
            f"{len(first) - 1} others",
            hint="add a link between the two pieces",
        )
