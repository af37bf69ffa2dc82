"""How an order of the operator reaches a run: the coordinator that leads it, else its journal.

A running coordinator is asked at its own port. The order is said with its own CURVE key, which only
who can read the run's folder has; so no other door is needed, and no file that is watched.
"""

from contextlib import closing

from coordinator.administration import Order, carry_out
from coordinator.journal import Journal
from coordinator.opening import Stored, keys_of, stored_run
from protocol.clock import MonotonicClock, wall_s
from protocol.errors import AddressError, ConfigError, RefusedError
from protocol.home import Home, holder_of, locked
from protocol.transport.addresses import HostPort, parse_host_port
from protocol.transport.base import CallerEvent
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import COORDINATOR
from protocol.wire.messages import CoordinatorMessage, Refuse, Told

__all__ = ["give"]

ANSWER_S = 10.0  # for an answer of a process on this host


def give(home: Home, run_name: str | None, order: Order) -> str:
    """Have an order carried out and written down; what was done, in a line.

    Args:
        home: of the coordinator's user, on its host.
        run_name: which run; the one written last, unless given.
        order: what is to be done.

    Raises:
        OperatorError: there is no such run, it cannot be done, or nobody answers.
    """
    stored = stored_run(home, run_name)
    if holder_of(stored.folder / "lock") is None:
        with locked(stored.folder / "lock", what=f"a coordinator of {stored.book.run_name}"):
            return _write(stored, order)
    return _ask(stored, order)


def _write(stored: Stored, order: Order) -> str:
    journal = Journal(stored.folder)
    loaded = journal.load()
    book = loaded.book if loaded is not None else stored.book
    done = carry_out(book, order, wall_s())
    journal.save(book)
    return done


def _ask(stored: Stored, order: Order) -> str:
    identity = keys_of(stored.folder, stored.book.run_name)
    public, secret = identity.curve_public, identity.curve_secret
    address = _here(parse_host_port(stored.book.bind, default_port=0)).endpoint
    clock = MonotonicClock()
    end_s = clock.now_s() + ANSWER_S
    with closing(ZeroMq(public_key=public, secret_key=secret)) as transport:
        caller = transport.call(address, server_key=identity.curve_public)
        poller = transport.poller()
        poller.add(caller)
        while (left_s := end_s - clock.now_s()) > 0:
            poller.poll(left_s)
            while (got := caller.receive()) is not None:
                if got is CallerEvent.CONNECTED:
                    caller.send(COORDINATOR.encode(order))
                elif isinstance(got, bytes):
                    return _done(COORDINATOR.decode(got))
    raise AddressError(
        f"the coordinator ({stored.holder}) did not answer at {address} within {ANSWER_S:.0f} s",
        hint="is it stopped or very busy? With its process ended, the order goes to its journal",
    )


def _done(answer: CoordinatorMessage) -> str:
    match answer:
        case Told(text):
            return text
        case Refuse(reason):
            raise RefusedError(reason)
        case _:
            raise ConfigError(f"the coordinator answered with a {type(answer).__name__}")


def _here(bound: HostPort) -> HostPort:
    """Where a process on the same host reaches what is bound there."""
    if not bound.is_wildcard:
        return bound
    return HostPort("::1" if ":" in bound.host else "127.0.0.1", bound.port)
