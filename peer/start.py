"""From the command line to a running peer: checks first, then sockets, then the loop."""

import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from peer.cached import Cached, find_view
from peer.data import ShardFacts, find_shard, shard_facts
from peer.data.shard import read_stored
from peer.dataplane.events import Event
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller
from peer.dataplane.server import Server
from peer.display import Display
from peer.faults.disk import watch_disk
from peer.faults.plan import agreed
from peer.faults.table import Fault, needs_launcher
from peer.faults.weather import BEGAN, LAUNCHED, PeerWeather
from peer.node import Node, Plan
from peer.options.attack import Attack
from peer.options.fields import Value
from peer.roles import Role
from peer.runtime import Runtime, Sockets
from peer.settings import FAULTS, typed, wished
from protocol.clock import Clock, MonotonicClock, wall_s
from protocol.errors import AddressError, ConfigError, DataError
from protocol.home import FoundJoin, find_home, find_join
from protocol.ids import PeerId, peer_id
from protocol.joinstring import JoinString
from protocol.transport.addresses import HostPort, local_address_towards, parse_host_port
from protocol.transport.base import Transport
from protocol.transport.chaos import Chaos
from protocol.transport.keys import Identity, held_identity
from protocol.transport.zeromq import ZeroMq, raise_descriptor_limit
from protocol.wire.membership import Membership, Patience
from protocol.wire.messages import WIRE_VERSION, Join, Option, SignedView

__all__ = ["Asked", "run_peer", "run_relay", "wishes_of"]

# Every interface, a free port: the view tells the others which.
ANY_IPV4, ANY_IPV6 = HostPort("0.0.0.0", 0), HostPort("::", 0)  # noqa: S104 - others must reach it


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person typed after `peer start`."""

    data: str  # empty for a relay
    gpu: str
    join: str | None
    bind: str | None
    advertise: str | None
    name: str | None
    out: Path | None
    threads: int | None
    alone: bool
    patience_s: float  # for the coordinator to answer, > 0
    explicit: Mapping[str, Value]
    attack: Attack | None = None
    faults: tuple[Fault, ...] = ()  # of the run
    resume: bool = False
    force: bool = False
    max_mbit: float | None = None  # to any one other node; None: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    """Who takes part, and with what."""

    name: PeerId
    role: Role
    facts: ShardFacts | None  # of a peer's shard; a relay has none
    wishes: Mapping[str, Value]


def run_peer(asked: Asked, display: Display) -> int:
    """Play a run; the exit code.

    Raises:
        OperatorError: something that the person must change, found before the run began.
    """
    facts = _checked_shard(asked.data)
    name = _name(asked.name, facts.name)
    wishes = wishes_of(_with_faults(asked), facts)
    return _run(asked, _Seat(name=name, role=Role.PEER, facts=facts, wishes=wishes), display)


def run_relay(asked: Asked, display: Display) -> int:
    """Aggregate for a run; the exit code.

    Raises:
        OperatorError: as `run_peer`.
    """
    name = _name(asked.name, "relay")
    wishes = typed(_with_faults(asked))
    return _run(asked, _Seat(name=name, role=Role.RELAY, facts=None, wishes=wishes), display)


def _with_faults(asked: Asked) -> Mapping[str, Value]:
    """What was typed, and what of the faults all nodes must have alike."""
    if FAULTS in asked.explicit:
        raise ConfigError(
            f"{FAULTS} is no option: it is found from the [[fault]] tables of each node",
            hint="give the same file with --faults at every node of the run",
        )
    return {**asked.explicit, FAULTS: agreed(asked.faults)}


def _run(asked: Asked, seat: _Seat, display: Display) -> int:
    if asked.resume and asked.force:
        raise ConfigError(
            "--resume goes on with what is there, --force removes it: both at once cannot be",
            hint="give one of them",
        )
    _check_gpu(asked.gpu)
    _tell_undone(asked.faults, seat.name, display)
    watch_disk(os.environ)
    found = find_join(asked.join, os.environ)
    home = find_home(os.environ)
    raise_descriptor_limit()
    with held_identity(
        home.keys / f"{seat.name}.key", what=f"a {seat.role} named {seat.name}"
    ) as identity:
        clock = MonotonicClock()
        weather = _weather(asked, seat.name, clock)
        with closing(_transport(identity, seat.name, weather, clock)) as transport:
            bind = _bind(asked.bind, found.join)
            cached = _cached(asked, seat, found.join, display)
            events: Inbox[Event] = Inbox(transport.wake())

            def serving(at: HostPort) -> Server:
                return Server(
                    transport,
                    bind=at.endpoint,
                    name=seat.name,
                    sign_secret=identity.sign_secret,
                    events=events,
                    max_bytes_s=math.inf if asked.max_mbit is None else asked.max_mbit * 125_000,
                )

            with ExitStack() as stack:
                server = _bound(stack, serving, bind, before=cached.address)
                puller = stack.enter_context(Puller(transport, events=events))
                address = _advertised(asked.advertise, bind, server.address, found.join)
                keys = address, identity.sign_public
                node = _node(asked, seat, found, keys, cached=cached.signed)
                display.line(_greeting(seat, address, found.join))
                join = found.join
                return Runtime(
                    node=node,
                    facts=seat.facts,
                    sockets=Sockets(
                        transport=transport,
                        coordinator=transport.call(join.address, server_key=join.curve_key),
                        server=server,
                        puller=puller,
                        events=events,
                    ),
                    display=display,
                    clock=clock,
                    threads=asked.threads,
                    weather=weather,
                ).run()


def _cached(asked: Asked, seat: _Seat, join: JoinString, display: Display) -> Cached:
    """The view that an earlier process of this peer has kept, where it is to go on."""
    if not asked.resume:
        return Cached()
    cached = find_view(asked.out, seat.name, join.sign_key)
    for trouble in cached.troubles:
        display.line(f"{seat.name}: {trouble}; this peer waits for the coordinator")
    return cached


def _bound(
    stack: ExitStack, serving: Callable[[HostPort], Server], bind: HostPort, *, before: str
) -> Server:
    """Serve at the port of an earlier process where any would do: the others call it there.

    Raises:
        AddressError: the address that was asked for is in use, or not of this machine.
    """
    if before and not bind.port:
        port = parse_host_port(before, default_port=0).port
        with suppress(AddressError):
            return stack.enter_context(serving(HostPort(bind.host, port)))
    return stack.enter_context(serving(bind))


def _tell_undone(faults: Iterable[Fault], me: PeerId, display: Display) -> None:
    """Say which of the faults nobody will carry out, where no launcher has started this process."""
    undone = [f"{f.number} ({f})" for f in faults if needs_launcher(f)]
    if undone and LAUNCHED not in os.environ:
        display.line(
            f"{me}: nobody carries out [[fault]] {', '.join(undone)}: what befalls processes is "
            "done by peer launch and peer simulate only"
        )


def _weather(asked: Asked, me: PeerId, clock: Clock) -> PeerWeather:
    """The faults of the run, whose time began before this process did where a launcher says so."""
    began = os.environ.get(BEGAN)
    began_s = clock.now_s() - (wall_s() - float(began)) if began else None
    return PeerWeather(asked.faults, me=me, began_s=began_s)


def _transport(keys: Identity, me: PeerId, weather: PeerWeather, clock: Clock) -> Transport:
    """Sockets, in the weather where there will be any."""
    zeromq = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
    return Chaos(zeromq, weather, clock=clock, seed=me.encode()) if weather else zeromq


def _node(
    asked: Asked,
    seat: _Seat,
    found: FoundJoin,
    keys: tuple[str, bytes],  # where the others reach it, and what they verify with
    *,
    cached: SignedView | None,
) -> Node:
    address, sign_key = keys
    join = Join(
        version=WIRE_VERSION,
        token=found.join.token,
        name=seat.name,
        role=seat.role.value,
        instance=secrets.token_bytes(8),
        address=address,
        sign_key=sign_key,
        wishes=tuple(Option(key, value) for key, value in sorted(seat.wishes.items())),
    )
    membership = Membership(
        join,
        sign_key=found.join.sign_key,
        where=f"{found.join.address} (from {found.source})",
        patience=Patience(give_up_s=asked.patience_s),
        cached=cached,
    )
    plan = Plan(
        me=seat.name,
        role=seat.role,
        explicit=seat.wishes,
        data=str(seat.facts.path.absolute()) if seat.facts is not None else "",
        device=asked.gpu,
        out=str(asked.out.absolute()) if asked.out is not None else "",
        alone=asked.alone,
        attack=str(asked.attack or ""),
        faults=asked.faults,
        resume=asked.resume,
        force=asked.force,
    )
    return Node(plan, membership)


def _checked_shard(data: str) -> ShardFacts:
    """Find a shard and read it whole: what is wrong with it is told before a run hears of it.

    Raises:
        DataError: there is none, or it cannot be used.
    """
    facts = shard_facts(find_shard(data))
    if facts.num_samples("train") == 0:
        raise DataError(f"{facts.path} is empty: it has no training sample", hint="one is enough")
    read_stored(facts.path)
    return facts


def _check_gpu(wish: str) -> None:
    if wish != "cpu" and not wish.isdecimal():
        raise ConfigError(f"--gpu {wish} cannot be used: it must be cpu or a number such as 0")


def wishes_of(typed: Mapping[str, Value], facts: ShardFacts) -> dict[str, Value]:
    """What was typed and what the data fix, in the types of the manifest.

    Raises:
        ConfigError: an option that does not exist, or a value that is not allowed.
    """
    shape = "x".join(str(side) for side in facts.input_shape)
    explicit = {
        **typed,
        "data.input": shape,
        "data.classes": len(facts.card.classes),
    }
    if len(facts.card.classes) < 2:
        raise DataError(f"{facts.path} has one class only; a classifier needs two")
    return wished(explicit)


def _name(typed: str | None, default: str) -> PeerId:
    try:
        return peer_id(typed if typed is not None else default)
    except ConfigError as error:
        raise ConfigError(str(error.args[0]), hint="give another with --name") from None


def _bind(typed: str | None, join: JoinString) -> HostPort:
    """Say where to listen: as typed, or on every interface, by the protocol of the coordinator."""
    if typed is not None:
        return parse_host_port(typed, default_port=0)
    try:
        towards = local_address_towards(join.host, join.port)
    except AddressError:
        return ANY_IPV4  # whoever has to know the way says that there is none
    return ANY_IPV6 if ":" in towards else ANY_IPV4


def _advertised(typed: str | None, bind: HostPort, bound: str, join: JoinString) -> str:
    """Where the others reach this peer: as typed, as bound, or as the coordinator sees us.

    Raises:
        AddressError: the address cannot be read, or no route leads to the coordinator.
    """
    port = parse_host_port(bound, default_port=0).port
    if typed is not None:
        given = parse_host_port(typed, default_port=port)
        if given.is_wildcard or not given.port:
            raise ConfigError(
                f"--advertise {typed} is not an address that others can reach",
                hint="give this host's own, e.g. --advertise 192.168.1.20",
            )
        return given.endpoint
    if not bind.is_wildcard:
        return HostPort(bind.host, port).endpoint
    return HostPort(local_address_towards(join.host, join.port), port).endpoint


def _greeting(seat: _Seat, address: str, join: JoinString) -> str:
    what = "a relay"
    if seat.facts is not None:
        domain = f" of {seat.facts.card.domain}" if seat.facts.card.domain else ""
        what = f"{seat.facts.num_samples('train')} training samples{domain}"
    return f"{seat.name}: {what}, reachable at {address}, joining the coordinator at {join.address}"
