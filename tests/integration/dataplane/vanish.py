"""A peer that is gone without a word, on a network of this process's own; says what it cost.

Run in a new network namespace: unshare --net python -m tests.integration.dataplane.vanish FOLDER
Its one line of output is JSON: seconds until the server had let go, its connections before and
just after the network went, and how the pull ended once the network was back.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil

from peer.dataplane.events import Event, Progressed, Pulled, PullFailed
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller
from protocol.clock import MonotonicClock
from protocol.transport.base import Poller
from protocol.transport.zeromq import ZeroMq
from tests.integration.dataplane.children import running
from tests.integration.dataplane.shop import Port, keep_shop, until
from tests.integration.dataplane.test_killed import Trade

SLOWLY = 4e6  # bytes a second: the pull is under way when the network goes
WITHIN_S = 60.0


def main(folder: str) -> None:
    _link("up")
    trade = Trade(Path(folder))
    clock = MonotonicClock()
    with ExitStack() as stack:
        pipe, pid = stack.enter_context(running(keep_shop, trade.shop(), SLOWLY))
        port = Port(pipe, trade.shop())
        before = port.footprint()
        transport = ZeroMq(public_key=trade.b.curve_public, secret_key=trade.b.curve_secret)
        stack.callback(transport.close)
        events: Inbox[Event] = Inbox(transport.wake())
        poller = transport.poller()
        poller.add(events.wake)
        puller = stack.enter_context(Puller(transport, events=events))
        puller.pull(trade.order(port.address))
        _wait(poller, events, lambda event: isinstance(event, Progressed))
        during, early = port.footprint(), _lines(pid)
        _link("down")
        gone_s = clock.now_s()
        lost = _lines(pid)
        until(lambda: not _lines(pid))
        took_s = clock.now_s() - gone_s
        after = port.footprint()
        _link("up")
        end = _wait(poller, events, lambda event: isinstance(event, Pulled | PullFailed))
    is_right = trade.received.read_bytes() == trade.body
    told = {
        "let_go_after_s": took_s,
        "connections": [early, lost],
        "grown_bytes": after.resident_bytes - before.resident_bytes,
        "threads": after.threads - during.threads,
        "pulled": isinstance(end, Pulled) and is_right,
    }
    sys.stdout.write(json.dumps(told) + "\n")


def _lines(pid: int) -> int:
    """TCP connections that this process has, to whomever."""
    there = psutil.Process(pid).net_connections("tcp")
    return sum(it.status != psutil.CONN_LISTEN for it in there)


def _link(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def _wait(poller: Poller, events: Inbox[Event], is_it: Callable[[Event], bool]) -> Event:
    clock = MonotonicClock()
    end_s = clock.now_s() + WITHIN_S
    while clock.now_s() < end_s:
        poller.poll(1.0)
        for event in events.drain():
            if is_it(event):
                return event
    raise AssertionError("nothing came")


if __name__ == "__main__":
    main(sys.argv[1])
