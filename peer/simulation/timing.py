"""How long things take on virtual time, where nothing really takes any."""

from dataclasses import dataclass

from peer.options.fields import check, number
from peer.work import Command, Evaluate, Inspect, Mix, Prepare, Publish, Train

__all__ = ["Timing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    step_s: float = number(0.02, "[0, 3600]", "seconds of one step of training")
    mix_s: float = number(0.02, "[0, 3600]", "seconds of mixing one neighbour")
    evaluate_s: float = number(0.05, "[0, 3600]", "seconds of an evaluation")
    prepare_s: float = number(3.0, "[0, 3600]", "seconds until a trainer is ready")
    latency_s: float = number(0.001, "[0, 60]", "seconds of a message on its way")
    bandwidth_mb_s: float = number(100.0, "(0, 1000000]", "megabytes a second between two peers")

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
