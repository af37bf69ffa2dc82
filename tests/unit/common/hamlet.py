"""A few whole peers with one common model, on virtual time, and what each began its rounds from."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from peer.chronicle import Chronicle
from peer.data import ShardFacts, shard_facts
from peer.display import Silence
from peer.effects import Over
from peer.ledger import EVENTS, read_events
from peer.node import Node, Plan
from peer.options.fields import Value
from peer.relay_trainer import RelayTrainer
from peer.roles import Role
from peer.settings import complete
from peer.simulation.coordinator_host import key_of
from peer.simulation.engine import Pending
from peer.simulation.fabric import Begin
from peer.simulation.here import one_thread
from peer.simulation.peer_host import PeerHost
from peer.simulation.timing import Timing
from peer.simulation.world import World
from peer.start import wishes_of
from peer.trainer import Trainer
from peer.work import Command, Prepare, Published
from protocol.ids import PeerId
from protocol.manifest import Manifest
from protocol.wire.codec import decode_document
from protocol.wire.membership import Membership
from protocol.wire.messages import WIRE_VERSION, Join, Option, SnapshotManifest
from protocol.wire.signing import sign_public
from tests.unit.training.classroom import write_digits


class Engine:
    """Runs every trainer here, and notes what was published by whom in which round."""

    def __init__(self) -> None:
        self.published: dict[int, dict[PeerId, SnapshotManifest]] = defaultdict(dict)
        self._trainers: dict[PeerId, Trainer | RelayTrainer] = {}

    def submit(self, peer: PeerId, command: Command) -> Pending:
        if isinstance(command, Prepare):
            relay = command.role is Role.RELAY
            self._trainers[peer] = RelayTrainer() if relay else Trainer()
        reply = self._trainers[peer].carry_out(command, lambda _done, _planned: None)
        assert reply is not None
        if isinstance(reply, Published):
            manifest = decode_document(SnapshotManifest, reply.snapshot.manifest)
            self.published[reply.round_no][peer] = manifest
        return lambda: reply

    def forget(self, peer: PeerId) -> None:
        self._trainers.pop(peer, None)

    def close(self) -> None:
        self._trainers.clear()


class Roads(World):
    """A world in which some pulls come to nothing."""

    def __init__(self, options: Manifest) -> None:
        super().__init__(
            run_name="hamlet",
            founders=3,
            options=options,
            seed=0,
            timing=Timing(prepare_s=0.5, step_s=0.2),
        )
        self.blocked: dict[tuple[str, str], int] = {}  # pulls still to fail, by who pulls from whom

    def pull(self, me: PeerId, other: PeerId, digest: bytes, begin: Begin) -> None:
        left = self.blocked.get((me, other), 0)
        if not left:
            super().pull(me, other, digest, begin)
            return
        self.blocked[me, other] = left - 1
        self.later(self.timing.latency_s, lambda: begin(None, "the road is blocked"))

    def answer(self, me: PeerId, asker: PeerId, header: bytes) -> None:
        if self.hosts[me].over is None:  # who has vanished says nothing more
            super().answer(me, asker, header)


class Hamlet:
    """Peers a, b and c; more may come later, and anybody may vanish."""

    def __init__(self, folder: Path, method: str, rounds: int, **options: Value) -> None:
        """Options of the run; `attack.c` says how c attacks."""
        self.folder = folder
        self.attacks = {name: str(options.pop(f"attack.{name}", "")) for name in "abc"}
        self.engine = Engine()
        given: dict[str, Value] = {"method": method, "model": "mlp", "run.rounds": rounds}
        whole = complete({**given, **options})
        self.world = Roads(Manifest({key: whole[key] for key in {**given, **options}}))
        for name in "abc":
            self.settle(name)

    def settle(self, name: str) -> None:
        """A peer moves in."""
        shard = self.folder / f"{name}.npz"
        facts = shard_facts(write_digits(shard, first=150 * (ord(name) - ord("a")), num=64))
        self._add(name, facts, shard)

    def settle_relay(self) -> None:
        self._add("relay", None, None)

    def at(self, at_s: float, event: Callable[[], None]) -> None:
        self.world.later(at_s, event)

    def vanish(self, name: str) -> None:
        """Without a word."""
        host = self.world.hosts[PeerId(name)]
        host.feed([Over(1, "vanished")])

    def leave(self, name: str) -> None:
        host = self.world.hosts[PeerId(name)]
        host.feed(host.node.stop("went home", self.world.now_s()))

    def play(self) -> None:
        with one_thread():
            self.world.run(lambda: None)

    def starts(self) -> dict[int, str]:
        """Who began each round from the same start with the same memory: "ab c", "abc" ..."""
        shown: dict[int, str] = {}
        for round_no, manifests in sorted(self.engine.published.items()):
            groups: dict[tuple[bytes, bytes], str] = defaultdict(str)
            for name, manifest in sorted(manifests.items()):
                if name != "relay":
                    groups[manifest.base, manifest.memory] += name
            shown[round_no] = " ".join(sorted(groups.values()))
        return shown

    def used(self, name: str) -> list[set[str]]:
        """Whose fresh results a node took in each of its rounds."""
        return [set(record["used"]) for record in self._records(name)]

    def stale(self, name: str) -> list[set[str]]:
        """Whose older results."""
        return [set(record["stale"]) for record in self._records(name)]

    def notes(self, name: str) -> list[dict[str, float]]:
        """What was said of each of its rounds."""
        return [record["notes"] for record in self._records(name)]

    def events(self, name: str, *kinds: str) -> list[tuple[str, str]]:
        """Kind and neighbour of what happened to a peer."""
        path = self.folder / "runs" / name / EVENTS
        return [
            (e.name, str(e.fields.get("peer", ""))) for e in read_events(path) if e.name in kinds
        ]

    def _records(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / "runs" / name / EVENTS
        return [dict(e.fields) for e in read_events(path) if e.name == "round"]

    def _add(self, name: str, facts: ShardFacts | None, shard: Path | None) -> None:
        me, role = PeerId(name), Role.RELAY if facts is None else Role.PEER
        wishes = wishes_of({}, facts) if facts is not None else {}
        coordinator = self.world.coordinator.join
        join = Join(
            version=WIRE_VERSION,
            token=coordinator.token,
            name=me,
            role=role.value,
            instance=key_of(me, "instance")[:8],
            address=f"tcp://{me}:1",
            sign_key=sign_public(key_of(me, "sign")),
            wishes=_options(wishes.items()),
        )
        plan = Plan(
            me=me,
            role=role,
            explicit=wishes,
            data=str(shard) if shard is not None else "",
            device="cpu",
            out=str(self.folder / "runs"),
            alone=False,
            attack=self.attacks.get(name, ""),
        )
        host = PeerHost(
            Node(plan, Membership(join, sign_key=coordinator.sign_key, where="here")),
            sign_secret=key_of(me, "sign"),
            fabric=self.world,
            engine=self.engine,
            timing=self.world.timing,
            chronicle=Chronicle(Silence(), peer=me, facts=facts),
        )
        self.world.add(host)


def _options(pairs: Iterable[tuple[str, Value]]) -> tuple[Option, ...]:
    return tuple(Option(key, value) for key, value in sorted(pairs))
