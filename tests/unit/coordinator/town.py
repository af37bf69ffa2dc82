"""A directory and nodes that talk to it by hand, for tests of what it answers."""

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from coordinator.book import Book
from coordinator.directory import Directory, Effect, Reply, WakeAt
from protocol.ids import RunId
from protocol.manifest import Manifest
from protocol.wire.codec import COORDINATOR
from protocol.wire.messages import (
    WIRE_VERSION,
    Admitted,
    CoordinatorMessage,
    Epoch,
    Join,
    Leave,
    Member,
    Ready,
    Refuse,
    Renew,
    Settle,
    SignedView,
    Told,
    View,
)
from protocol.wire.signing import open_view, sign_public

SIGN_SECRET = bytes(range(32))
SIGN_KEY = sign_public(SIGN_SECRET)
TOKEN = b"t" * 16
RUN = RunId(b"r" * 16)
LEASE_S = 15.0
SCHEMA, INIT = b"s" * 32, b"i" * 32
WHOLE = Manifest({"run.rounds": 3, "solver.lr": 0.05})


@dataclass(frozen=True)
class Node:
    name: str
    key: bytes = b""
    route: bytes = b""
    instance: bytes = b"process1"
    token: bytes = TOKEN
    role: str = "peer"
    version: int = WIRE_VERSION
    address: str = ""
    wishes: Manifest = field(default_factory=Manifest)

    def __post_init__(self) -> None:
        digest = blake2b(self.name.encode(), digest_size=32).digest()
        object.__setattr__(self, "key", self.key or digest)
        object.__setattr__(self, "route", self.route or digest[:5])
        object.__setattr__(self, "address", self.address or "tcp://10.0.0.1:4000")

    def but(self, **changes: Any) -> "Node":
        return replace(self, **changes)

    def join(self) -> Join:
        return Join(
            version=self.version,
            token=self.token,
            name=self.name,
            role=self.role,
            instance=self.instance,
            address=self.address,
            sign_key=self.key,
            wishes=self.wishes.options(),
        )


A, B, C = Node("a"), Node("b"), Node("c")
OPERATOR = Node("operator")


class Town:
    """A directory at a moment that the test moves."""

    def __init__(
        self,
        *,
        founders: int = 2,
        relays: int = 0,
        pinned: Manifest | None = None,
        book: Book | None = None,
    ) -> None:
        self.book = book or Book(
            run=RUN,
            run_name="town",
            token=TOKEN,
            founders=founders,
            relays=relays,
            incarnation=1,
            options=pinned or Manifest(),
        )
        self.now_s = 0.0
        self.since_1970_s = 1.8e9
        self.open()

    def open(self) -> None:
        """Start the directory, for the first time or again over the same book."""
        self.directory = Directory(
            self.book,
            sign_secret=SIGN_SECRET,
            lease_s=LEASE_S,
            now_s=self.now_s,
            operator=OPERATOR.key,
            since_1970_s=lambda: self.since_1970_s,
        )

    def hear(self, node: Node, message: CoordinatorMessage) -> tuple[Effect, ...]:
        return self.hear_bytes(node, COORDINATOR.encode(message))

    def hear_bytes(self, node: Node, header: bytes) -> tuple[Effect, ...]:
        return self.directory.receive(node.route, node.key, header, self.now_s)

    def join(self, *nodes: Node) -> None:
        for node in nodes:
            self.hear(node, node.join())

    def ready(self, *nodes: Node) -> None:
        """Bring them all the way into the lobby."""
        for node in nodes:
            self.join(node)
            self.hear(node, Settle(WHOLE.options()))
            self.hear(node, Ready(SCHEMA, INIT))

    def renew(self, node: Node, *, epoch: Epoch | None = None) -> tuple[Effect, ...]:
        return self.hear(node, Renew(epoch or self.directory.epoch, 1, "train"))

    def order(self, order: CoordinatorMessage) -> tuple[str, tuple[Effect, ...]]:
        """What the operator is told, and all effects."""
        effects = self.hear(OPERATOR, order)
        (answer,) = answers(effects, OPERATOR)
        assert isinstance(answer, Told | Refuse)
        return (answer.text if isinstance(answer, Told) else f"no: {answer.reason}"), effects

    def leave(self, node: Node) -> tuple[Effect, ...]:
        return self.hear(node, Leave("done"))

    def wait(self, seconds: float) -> tuple[Effect, ...]:
        self.now_s += seconds
        return self.directory.wake(self.now_s)

    def member(self, node: Node) -> Member:
        return next(m for m in self.directory.view.members if m.name == node.name)

    def founding(self) -> list[str]:
        return list(self.directory.view.founding)

    def states(self) -> dict[str, str]:
        return {member.name: member.state for member in self.directory.view.members}


def answers(effects: tuple[Effect, ...], node: Node) -> list[CoordinatorMessage]:
    return [e.message for e in effects if isinstance(e, Reply) and e.route == node.route]


def refusal(effects: tuple[Effect, ...], node: Node) -> str:
    """The reason of the one Refuse among the answers to a node."""
    (reason,) = [m.reason for m in answers(effects, node) if isinstance(m, Refuse)]
    return reason


def admission(effects: tuple[Effect, ...], node: Node) -> Admitted:
    (admitted,) = [m for m in answers(effects, node) if isinstance(m, Admitted)]
    return admitted


def shown(effects: tuple[Effect, ...], node: Node) -> View:
    """The one view that was pushed to a node."""
    (view,) = [
        open_view(m, SIGN_KEY).view for m in answers(effects, node) if isinstance(m, SignedView)
    ]
    return view


def woken_at_s(effects: tuple[Effect, ...]) -> float:
    (at_s,) = [e.at_s for e in effects if isinstance(e, WakeAt)]
    return at_s
