"""A link and a shelf over a network that loses, delays and breaks: a question finds its answer."""

from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.wire import link as links
from protocol.wire import shelf as shelves
from protocol.wire.codec import PEER
from protocol.wire.link import Link
from protocol.wire.shelf import Shelf
from tests.unit.wire.conversation import (
    HELLO,
    RUN,
    SCHEMA,
    SECRET,
    SIGN_KEY,
    A,
    B,
    encoded,
    name_of,
)

FAIR_FROM_S = 60.0
END_S = 200.0
ROUNDS = 4


class World:
    """b asks a for one round after another; a publishes one every five seconds."""

    def __init__(self, *, seed: int, loss: float, breaks: float) -> None:
        self.now_s = 0.0
        self.told: list[links.Effect] = []
        self._dice, self._loss, self._breaks = Random(seed), loss, breaks
        self._order, self._routes = count(), count(1)
        self._agenda: list[tuple[float, int, str, Any]] = []
        self._link = Link(HELLO, neighbour=A, sign_key=SIGN_KEY, silence_s=5.0, reask_s=7.0)
        self._shelf = Shelf(run=RUN, name=A, schema=SCHEMA, sign_secret=SECRET)
        self._route = 0
        self._wake_s: float | None = None
        self._shelf_wake_s: float | None = None

    def run(self) -> None:
        self._later(self._dice.random(), "connect", None)
        for round_no in range(1, ROUNDS + 1):
            self._later(5.0 * round_no, "publish", round_no)
        self._of_link(self._link.ask(1, 0.0))
        while not self._link.is_finished:
            assert self._agenda, "nothing is left to happen and the link is not finished"
            self.now_s, _, what, content = heappop(self._agenda)
            assert self.now_s < END_S, self.told
            getattr(self, f"_{what}")(content)

    def _later(self, delay_s: float, what: str, content: Any) -> None:
        heappush(self._agenda, (self.now_s + delay_s, next(self._order), what, content))

    def _happens(self, chance: float) -> bool:
        return self.now_s < FAIR_FROM_S and self._dice.random() < chance

    def _carry(self, what: str, content: Any) -> None:
        if self._happens(self._breaks):
            self._later(0.0, "break", self._route)
        if not self._happens(self._loss):
            self._later(self._dice.uniform(0.01, 0.2), what, content)

    def _connect(self, _: None) -> None:
        self._route = next(self._routes)
        self._of_link(self._link.connected(self.now_s))

    def _break(self, route: int) -> None:
        if route == self._route != 0:
            self._route = 0
            self._later(self._dice.random(), "connect", None)
            self._of_link(self._link.disconnected(self.now_s))

    def _publish(self, round_no: int) -> None:
        self._of_shelf(self._shelf.publish(round_no, encoded(round_no)))

    def _wake(self, at_s: float) -> None:
        if at_s == self._wake_s:
            self._of_link(self._link.wake(self.now_s))

    def _wake_shelf(self, at_s: float) -> None:
        if at_s == self._shelf_wake_s:
            self._of_shelf(self._shelf.wake(self.now_s))

    def _request(self, content: tuple[int, bytes]) -> None:
        route, header = content
        message = PEER.decode(header)
        self._of_shelf(self._shelf.receive(route.to_bytes(4), B, message, self.now_s))

    def _answer(self, content: tuple[int, bytes]) -> None:
        route, header = content
        if route == self._route:
            self._of_link(self._link.receive(PEER.decode(header), self.now_s))

    def _of_link(self, effects: tuple[links.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case links.Send(message):
                    self._carry("request", (self._route, PEER.encode(message)))
                case links.WakeAt(at_s):
                    assert at_s > self.now_s
                    self._wake_s = at_s
                    self._later(at_s - self.now_s, "wake", at_s)
                case links.Answered(round_no, _, digest):
                    assert digest == name_of(round_no)
                    self.told.append(effect)
                    done = round_no >= ROUNDS
                    ask, finish = self._link.ask, self._link.finish
                    self._of_link(finish(self.now_s) if done else ask(round_no + 1, self.now_s))
                case _:
                    self.told.append(effect)

    def _of_shelf(self, effects: tuple[shelves.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case shelves.Reply(route, message):
                    if int.from_bytes(route) == self._route:
                        self._carry("answer", (self._route, PEER.encode(message)))
                    else:
                        self._shelf.gone(route)
                case links.WakeAt(at_s):
                    assert at_s > self.now_s
                    self._shelf_wake_s = at_s
                    self._later(at_s - self.now_s, "wake_shelf", at_s)
                case shelves.PeerDone():
                    pass


@given(seed=st.integers(0, 2**32), loss=st.floats(0.0, 0.5), breaks=st.floats(0.0, 0.2))
def test_every_question_is_answered_in_the_end(seed: int, loss: float, breaks: float) -> None:
    world = World(seed=seed, loss=loss, breaks=breaks)
    world.run()
    rounds = [effect.round_no for effect in world.told if isinstance(effect, links.Answered)]
    assert rounds == sorted(set(rounds))
    assert rounds[-1] == ROUNDS
    assert world.told[-1] == links.Finished()


@given(seed=st.integers(0, 2**32))
def test_on_a_fair_day_each_round_is_answered_as_it_is_published(seed: int) -> None:
    world = World(seed=seed, loss=0.0, breaks=0.0)
    world.run()
    answers = [effect for effect in world.told if isinstance(effect, links.Answered)]
    assert [answer.round_no for answer in answers] == [1, 2, 3, 4]
    assert not any(isinstance(effect, links.LinkDown) for effect in world.told)
    assert world.now_s < 5.0 * ROUNDS + 1.0
