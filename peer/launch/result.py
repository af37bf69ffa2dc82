"""What a launched run came to: result.json, a table, and what its influence shows."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from peer.affinity import Affinity, Contrast, camp_contrast, domain_contrast
from peer.data.archive import replacing
from peer.experiment import Experiment
from peer.launch.board import Failure
from peer.summary import PeerSummary

__all__ = ["RelayRow", "Result", "findings", "remarks", "served_table", "table", "write_result"]

_NO_VALUE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayRow:
    id: str
    aggregator: str
    rounds_finished: int
    rounds_degraded: int  # of those, in how many a peer's contribution was missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All that finished, and what did not; `result.json` is this."""

    run: str
    seed: int
    preset: str
    rounds: int
    served_rounds: Mapping[str, int]  # of all peers: in how many rounds each model was served
    peers: tuple[PeerSummary, ...]
    failed: tuple[Failure, ...]
    relays: tuple[RelayRow, ...] = ()
    gone: tuple[str, ...] = ()  # who was killed by a fault at last, or was to join too late

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        summaries: Sequence[PeerSummary],
        failures: Sequence[Failure],
        relays: Sequence[PeerSummary] = (),
        gone: Sequence[str] = (),
    ) -> "Result":
        settings = experiment.settings
        return cls(
            run=experiment.name,
            seed=settings.run.seed,
            preset=settings.method,
            rounds=settings.run.rounds,
            served_rounds=_total(peer.served_rounds for peer in summaries),
            peers=tuple(summaries),
            failed=tuple(failures),
            relays=tuple(
                RelayRow(
                    id=relay.id,
                    aggregator=settings.recipe.aggregator.name,
                    rounds_finished=relay.rounds_finished,
                    rounds_degraded=relay.rounds_degraded,
                )
                for relay in relays
            ),
            gone=tuple(gone),
        )


def _total(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum of the peers' rows, the most frequent first."""
    total = Counter[str]()
    for row in rows:
        total.update(row)
    return dict(total.most_common())


def write_result(path: Path, result: Result) -> None:
    """Write it whole or not at all.

    Raises:
        DataError: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(json.dumps(asdict(result), indent=1).encode() + b"\n")


# -- the table ----------------------------------------------------------------------------------

_ACCURACIES: Mapping[str, str] = {
    "alone_sgd_accuracy": "alone,\nSGD",
    "alone_same_solver_accuracy": "alone,\nsame",
    "mixed_accuracy": "mixed",
    "trained_accuracy": "trained",
    "own_accuracy": "served",
}


def table(result: Result) -> Table:
    """Lay the peers out, and their means; accuracies on the own test splits in percent."""
    shown = Table(
        box=SIMPLE, padding=0, show_edge=False, show_footer=len(result.peers) > 1, highlight=False
    )
    shown.add_column("peer", "mean", no_wrap=True)
    shown.add_column("domain", no_wrap=True)
    shown.add_column("camp", justify="right")
    shown.add_column("data", justify="right")
    shown.add_column("rounds", justify="right")
    for key, title in _ACCURACIES.items():
        values = [getattr(peer, key) for peer in result.peers]
        known = [value for value in values if value is not None]
        mean = _percent(sum(known) / len(known) if known else None)
        shown.add_column(title, mean, justify="right", no_wrap=True, min_width=6)
    shown.add_column("helped\nmost by")
    for peer in result.peers:
        shown.add_row(
            peer.id,
            peer.domain,
            str(peer.camp),
            str(peer.samples),
            Text(str(peer.rounds_finished), style="yellow" if peer.rounds_degraded else ""),
            *(_percent(getattr(peer, key)) for key in _ACCURACIES),
            peer.helped_most_by or _NO_VALUE,
        )
    return shown


def remarks(result: Result) -> list[str]:
    """Say what the table leaves out: who missed whom, who attacked, what privacy cost."""
    degraded = [
        f"{peer.id} {peer.rounds_degraded}" for peer in result.peers if peer.rounds_degraded
    ]
    attackers = [f"{peer.id} ({peer.attack})" for peer in result.peers if peer.attack]
    spent = [f"{peer.id} {peer.epsilon:.3g}" for peer in result.peers if peer.epsilon is not None]
    told = {
        "rounds in which a neighbour was missing": degraded,
        "attacked the others": attackers,
        "differential privacy, epsilon spent": spent,
    }
    lines = [f"{what}: {', '.join(who)}" for what, who in told.items() if who]
    if result.gone:
        lines.append(f"kept from finishing by faults: {', '.join(result.gone)}")
    return [*lines, *(_of_relay(relay) for relay in result.relays)]


def _of_relay(relay: RelayRow) -> str:
    line = f"{relay.id} aggregated {relay.rounds_finished} rounds with {relay.aggregator}"
    missed = f"; somebody was missing in {relay.rounds_degraded}" if relay.rounds_degraded else ""
    return line + missed


def served_table(result: Result) -> Table | None:
    """Lay out in which share of its rounds each peer served which model; None without a choice."""
    if len(result.served_rounds) < 2:
        return None
    shown = Table(box=SIMPLE, padding=0, show_edge=False, show_footer=True, highlight=False)
    shown.add_column("served", "all peers", no_wrap=True)
    for name in result.served_rounds:
        share = _share_of(result.served_rounds, name)
        shown.add_column(name, share, justify="right", no_wrap=True)
    shown.add_column("in the end", no_wrap=True)
    for peer in result.peers:
        shares = (_share_of(peer.served_rounds, name) for name in result.served_rounds)
        shown.add_row(peer.id, *shares, peer.served)
    return shown


def _share_of(rounds: Mapping[str, int], name: str) -> str:
    total = sum(rounds.values())
    return _percent(rounds.get(name, 0) / total if total else None)


def _percent(value: float | None) -> str:
    return _NO_VALUE if value is None else f"{value:.1%}"


# -- what the influence shows ---------------------------------------------------------------------


def findings(whole: Affinity) -> list[str]:
    """Say in a line each whether camps, and domains within camps, show in who helped whom."""
    lines = []
    if contrast := camp_contrast(whole):
        overlap = _overlap(whole)
        lines.append(_line("a peer of the own camp", "one of another camp", contrast) + overlap)
    if contrast := domain_contrast(whole):
        where = "in the own camp, " if len(set(whole.camps)) > 1 else ""
        lines.append(_line(f"{where}a peer of the own domain", "one of another domain", contrast))
    return lines


def _line(same: str, other: str, contrast: Contrast) -> str:
    ratio = f"{contrast.ratio:.3g}" if contrast.ratio < 1000.0 else "over 1000"
    how = "all" if contrast.enumerated else "a draw of"
    return (
        f"{same} weighs {contrast.same:.2f} of an equal share, {other} {contrast.other:.2f}: "
        f"ratio {ratio}, p = {contrast.p_value:.3f} (among {how} {contrast.num_labellings} ways "
        "to deal the labels)"
    )


def _overlap(whole: Affinity) -> str:
    """Warn where camps are domains under another name: no test can then tell them apart."""
    camps_of = {
        domain: {c for c, d in zip(whole.camps, whole.domains, strict=True) if d == domain}
        for domain in set(whole.domains)
    }
    if len(camps_of) > 1 and all(len(camps) == 1 for camps in camps_of.values()):
        return "; here each domain is of one camp alone, so this may be the domains' doing"
    return ""
