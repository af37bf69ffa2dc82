"""Lines of a manifest that nothing reads: refused where they can only be a mistake, else told.

One rule: what a word or a flag of the *same table* leaves without use is refused, and so is what
rests on a number that is off unless it is typed (`dp_clip` without `dp_noise`: nobody shall believe
in a protection that is not there). What a number that a person has set to its end, or *another
table* (the method, the model) leaves without use is told and goes on: the tables [train], [mix],
[pace], [share] and [admit] hold for every method, so that one file compares them. A default asks
for nothing, and is neither.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from peer.options.fields import Rule, Value, shown
from peer.options.mixers import MIXERS
from peer.options.models import MODELS
from peer.roles import Exchange
from protocol.errors import ConfigError
from protocol.topology import DEFAULT_TOPOLOGY

__all__ = ["refuse_unused", "unused"]

_OF_EXCHANGE = (  # what two peers have to do with each other
    *("run.topology", "share.codec", "share.topk", "admit.finite", "admit.norm", "mix.buffers"),
    *("pace.mode", "pace.quorum", "pace.grace_s", "pace.bound_s", "pace.silence_s", "pace.drain_s"),
)
_OF_LATE = ("pace.max_staleness", "pace.half_life")
_MEASURES = "fedc2i"  # the mixer that asks the training data who helps


@dataclass(frozen=True, slots=True)
class _Idle:
    """A line that the value of another one leaves without use."""

    key: str
    value: Value
    other: str
    seen: Value
    rule: Rule

    @property
    def is_mistake(self) -> bool:
        """Would a person believe that it does something?"""
        return isinstance(self.seen, str | bool) or self.seen == self.rule.default

    def __str__(self) -> str:
        return f"{self.key} = {shown(self.value)} has no use with {self.other} = {shown(self.seen)}"


def refuse_unused(
    flat: Mapping[str, Value], declared: Mapping[str, Rule], known: Container[str]
) -> None:
    """Refuse a line that another one of its table makes a mistake.

    Args:
        flat: a whole manifest.
        declared: the declarations of its lines.
        known: lines whose value stands; what another one decides is not asked yet.

    Raises:
        ConfigError: it says what was seen, where the line is read, and what to do.
    """
    for idle in _within_tables(flat, declared):
        if not idle.is_mistake or idle.other not in known:
            continue
        own, section = declared[idle.key], idle.key.partition(".")[0]
        told = own.only.told(section) if own.only is not None else ""
        raise ConfigError(
            f"{idle}: it is read only with {told}",
            hint=f"set {told}, or leave {idle.key} out; its default, {shown(own.default)}, is "
            "always allowed",
        )


def unused(
    flat: Mapping[str, Value], declared: Mapping[str, Rule], exchange: Exchange
) -> tuple[str, ...]:
    """Tell what was asked for and has no use in this run, a line each, sorted by key.

    Args:
        flat: a whole manifest.
        declared: the declarations of its lines.
        exchange: whom a peer asks, by its mixer.
    """
    found = {idle.key: str(idle) for idle in _within_tables(flat, declared) if not idle.is_mistake}
    for key, why in _by_method(flat, exchange):
        if flat[key] != _default(key, declared):
            found.setdefault(key, f"{key} = {shown(flat[key])} has no use with {why}")
    return tuple(told for _, told in sorted(found.items()))


def _within_tables(flat: Mapping[str, Value], declared: Mapping[str, Rule]) -> Iterator[_Idle]:
    for key, rule in declared.items():
        if rule.only is None or flat[key] == rule.default:
            continue
        other = f"{key.partition('.')[0]}.{rule.only.option}"
        if not rule.only.holds(flat[other]):
            yield _Idle(key, flat[key], other, flat[other], declared[other])


def _by_method(flat: Mapping[str, Value], exchange: Exchange) -> Iterator[tuple[str, str]]:
    """Lines that this method or model leaves without use, and what of it does."""
    mixer = f"mixer = {flat['mixer']}"
    if exchange is Exchange.NONE:
        yield from ((key, f"{mixer}: nothing is exchanged") for key in (*_OF_EXCHANGE, *_OF_LATE))
    if exchange is Exchange.RELAY:
        yield "run.topology", f"{mixer}: peers ask the relay alone"
    if exchange in {Exchange.COMMON, Exchange.RELAY}:
        late = f"{mixer}: what is late has no part in one common model"
        yield from ((key, late) for key in _OF_LATE)
    if flat["mixer"] in MIXERS and flat["mixer"] != _MEASURES:  # of installed ones who knows
        yield "mix.probe_batches", f"{mixer}: it measures no influence"
    model = str(flat["model"])
    if model in MODELS and not MODELS[model].normalised:
        yield "mix.buffers", f"model = {model}, which has no BatchNorm"
    elif model in MODELS and flat["model.norm"] != "batch":
        yield "mix.buffers", f"model = {model} without BatchNorm (model.norm = batch)"


def _default(key: str, declared: Mapping[str, Rule]) -> Value:
    return declared[key].default if key in declared else DEFAULT_TOPOLOGY
