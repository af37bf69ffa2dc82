"""How long things take on virtual time, where nothing really takes any; the table `[timing]`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from peer.options.fields import check, number, rules
from peer.options.tables import FLAG, keyed, take
from peer.work import Command, Evaluate, Inspect, Mix, Prepare, Publish, Train
from protocol.errors import ConfigError
from protocol.ids import PeerId, peer_id

__all__ = ["Timing", "TimingTable", "read_timing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    step_s: float = number(0.02, "[0, 3600]", "seconds of one step of training")
    mix_s: float = number(0.02, "[0, 3600]", "seconds of mixing one neighbour")
    evaluate_s: float = number(0.05, "[0, 3600]", "seconds of an evaluation")
    prepare_s: float = number(3.0, "[0, 3600]", "seconds until a trainer is ready")
    latency_s: float = number(0.001, "[0, 60]", "seconds of a message on its way")
    bandwidth_mb_s: float = number(
        100.0, "[0.000001, 1000000]", "megabytes a second between two peers"
    )

    def __post_init__(self) -> None:
        check(self)

    def work_s(self, command: Command, *, num_steps: int) -> float:
        """Duration of a command of the trainer; `num_steps` is that of a round's training."""
        match command:
            case Prepare():
                return self.prepare_s
            case Mix(_, _, inputs):
                return self.mix_s * (1 + len(inputs))
            case Train():
                return self.step_s * num_steps
            case Evaluate():
                return self.evaluate_s
            case Inspect() | Publish():
                return self.mix_s
            case _:
                return 0.0

    def pull_s(self, num_bytes: int) -> float:
        """Duration of a pull, after the request has arrived."""
        return num_bytes / (self.bandwidth_mb_s * 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingTable:
    """The durations of all peers, and of those that are slower or quicker than the others."""

    default: Timing = field(default_factory=Timing)
    peers: Mapping[PeerId, Timing] = field(default_factory=dict)
    calibrate: bool = False  # time real steps on this machine first, for `default.step_s`

    def of(self, name: str) -> Timing:
        return self.peers.get(PeerId(name), self.default)

    def between(self, one: str, other: str) -> tuple[float, float]:
        """Latency in seconds and bandwidth in MB/s of a way: the worse end of it decides."""
        ends = (self.of(one), self.of(other))
        return max(e.latency_s for e in ends), min(e.bandwidth_mb_s for e in ends)

    def with_step_s(self, step_s: float) -> "TimingTable":
        """The same, with another duration of a step where no peer's own table gives one.

        A peer's own step keeps its ratio to the common one.
        """
        ratio = step_s / self.default.step_s if self.default.step_s else 1.0
        limit = 3600.0
        own = {
            name: replace(timing, step_s=min(limit, timing.step_s * ratio))
            for name, timing in self.peers.items()
        }
        return replace(self, default=replace(self.default, step_s=step_s), peers=own)


def read_timing(raw: object) -> TimingTable:
    """Check the table `[timing]` of an experiment file, with `[timing.peers.NAME]` in it.

    Raises:
        ConfigError: a key or value that is not allowed; the text names the table and the key.
    """
    table = dict(keyed(raw, "[timing]", None))
    calibrate = take(table, "timing.calibrate", FLAG, default=False)
    table.pop("calibrate", None)
    peers = table.pop("peers", {})
    if not isinstance(peers, dict):
        raise ConfigError("[timing.peers] must hold a table for each peer, [timing.peers.NAME]")
    default = _timing("timing", table, Timing(), more=("calibrate", "peers"))
    if calibrate and "step_s" in table:
        raise ConfigError("[timing] has step_s and calibrate, which measures it: take one of them")
    own = {peer_id(n): _timing(f"timing.peers.{n}", t, default) for n, t in peers.items()}
    return TimingTable(default=default, peers=own, calibrate=calibrate)


def _timing(where: str, table: object, base: Timing, more: tuple[str, ...] = ()) -> Timing:
    declared = rules(Timing)
    given: dict[str, float] = {}
    for key, value in keyed(table, f"[{where}]", [*declared, *more]).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{where}.{key} = {value!r:.60}: it must be {declared[key]}")
        given[key] = float(declared[key].read(f"{where}.{key}", value))
    kept = {f.name: getattr(base, f.name) for f in fields(Timing)}
    return Timing(**(kept | given))
