"""What a node is doing at this instant, for the person who watches."""

from peer.display import Now, Waiting
from peer.effects import Tell
from peer.node import Node

__all__ = ["now_of"]


def now_of(node: Node, doing: Tell) -> Now:
    machine, settings = node.machine, node.settings
    waiting: list[Waiting] = []
    if machine is not None:
        for name in machine.missing():
            news = machine.neighbours[name].news
            waiting.append(
                Waiting(name, news.phase, news.fraction, news.eta_s) if news else Waiting(name)
            )
    return Now(
        phase=node.phase,
        round_no=machine.round_no if machine is not None else 0,
        rounds=settings.run.rounds if settings is not None else 0,
        fraction=doing.fraction,
        asked=len(machine.asked) if machine is not None else 0,
        waiting_for=waiting,
    )
