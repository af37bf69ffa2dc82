"""Which model a peer serves to its user, so that joining leaves nobody worse off than alone.

What came out of the round is served unless another point is better on the peer's own validation
split by more than noise: one standard error of the paired difference, for both have seen the same
examples, and what is hard for both cancels. With `wins` examples that only the other one has right
and `defeats` that only this one has, that is `wins - defeats > sqrt(wins + defeats)`: McNemar's
statistic (1947) above 1. Of the points that pass, the one that is right most often is served; of
those that are right equally often, the one of the least loss. Nothing that is shared depends on it.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from peer.bench import Bench, Examined
from peer.evaluate import Outcomes
from peer.work import Candidate, Evaluated, Score
from protocol.params import Params, weighted_mean
from protocol.round import Start, Trained

__all__ = ["Point", "Served", "between", "choose", "serve", "served_by"]

SHARES = (0.25, 0.5, 0.75)  # of the second point, on the line between two
_HUGE_NATS = 1e300


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A model that may be served."""

    name: str
    params: Params
    buffers: Params
    share: float = 1.0  # of the second model, where it lies between two


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Served:
    """The model that is served, and what is known of those that were not."""

    point: Point
    own: Score  # of that model
    mixed: Score
    trained: Score
    twin: Score | None  # None where there is none
    candidates: tuple[Candidate, ...]  # that were asked beside what came out of the round

    def told(self, round_no: int, seconds: float) -> Evaluated:
        """What a node hears of it."""
        twin = () if self.twin is None else (self.twin,)
        name = self.point.name
        return Evaluated(
            round_no, self.mixed, self.trained, self.own, name, seconds, twin, self.candidates
        )


def served_by(trained: Trained) -> tuple[Params, Params]:
    """Parameters and buffers of the model that a result is for: `personal`, where it has one."""
    own = {**trained.params, **trained.buffers, **(trained.personal or {})}
    return {n: own[n] for n in trained.params}, {n: own[n] for n in trained.buffers}


def between(first: Point, second: Point, share: float) -> Point:
    """The point with `share` of the second, running statistics in the same proportion.

    They are no longer those of the layers before them: a point whose layers suffer from it will not
    validate well. Estimating them anew would cost a pass over the training data for each point.
    """
    parts = ((first, 1.0 - share), (second, share))
    return Point(
        f"{first.name}+{second.name}",
        weighted_mean((point.params, weight) for point, weight in parts),
        weighted_mean((point.buffers, weight) for point, weight in parts),
        share,
    )


def choose(
    own: tuple[Point, Outcomes], others: Iterable[tuple[Point, Outcomes]]
) -> tuple[Point, tuple[Candidate, ...]]:
    """The point to serve, and how each of the others compares with `own`.

    Args:
        own: what came out of the round, and its outcomes on the validation split.
        others: in the order in which ties are settled; only the best so far is held.
    """
    point, of_own = own
    best = (0, 0.0)  # net wins, and minus the loss
    candidates: list[Candidate] = []
    for other, found in others:
        wins = int((found.correct & ~of_own.correct).sum())
        defeats = int((of_own.correct & ~found.correct).sum())
        loss, net = _loss(found), wins - defeats
        accuracy = found.correct.double().mean().item()
        candidates.append(Candidate(other.name, other.share, accuracy, loss, wins, defeats))
        if net > 0 and net * net > wins + defeats and (net, -loss) > best:
            point, best = other, (net, -loss)
    return point, tuple(candidates)


def serve(
    bench: Bench, start: Start, trained: Trained, twin: tuple[Params, Params] | None
) -> Served:
    """Score the points of a round, and say which one is served.

    Args:
        bench: whose validation split decides, where `serve.never_worse` is on and it has one.
        start: what the mixer made.
        trained: what came out.
        twin: parameters and buffers of the model that was trained alone.
    """
    mixed = Point("mixed", start.params, start.buffers)
    result = Point("trained", trained.params, trained.buffers)
    of_mixed, of_result = _examined(bench, mixed), _examined(bench, result)
    known = [(mixed, of_mixed)]
    own, of_own = result, of_result
    if trained.personal is not None:
        known.append((own, of_own))
        own = Point("personal", *served_by(trained))
        of_own = _examined(bench, own)
    alone = None
    if twin is not None:
        known.append((Point("twin", *twin), _examined(bench, Point("twin", *twin))))
        alone = known[-1][1].score
    point, candidates = own, tuple[Candidate, ...]()
    if bench.settings.recipe.serve.never_worse and of_own.val is not None:
        point, candidates = choose((own, of_own.val), _asked(bench, own, known))
    of_point = next((e for p, e in [(own, of_own), *known] if p is point), None)
    return Served(
        point=point,
        own=(of_point or _examined(bench, point)).score,
        mixed=of_mixed.score,
        trained=of_result.score,
        twin=alone,
        candidates=candidates,
    )


def _asked(
    bench: Bench, own: Point, known: list[tuple[Point, Examined]]
) -> Iterator[tuple[Point, Outcomes]]:
    """Every other point with its outcomes on the validation split; those between are made here."""
    for point, examined in known:
        if examined.val is not None:
            yield point, examined.val
    for point, _ in known:
        for share in SHARES:
            found = between(own, point, share)
            if (outcomes := bench.validate(found.params, found.buffers)) is not None:
                yield found, outcomes


def _examined(bench: Bench, point: Point) -> Examined:
    return bench.examine(point.params, point.buffers)


def _loss(found: Outcomes) -> float:
    loss = found.losses.mean().item()
    return loss if math.isfinite(loss) else _HUGE_NATS
