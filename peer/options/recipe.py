"""A method as options: a name and hyperparameters for each slot, and what holds for all of them.

Flat keys are what the run's manifest carries: `mixer = fedc2i`, `mixer.gamma = 5.0`, `mix.buffers`,
`solver`, `solver.lr`, `train.batch_size`, `aggregator`. `mixer.*`, `solver.*` and `aggregator.*`
belong to the method of that name; `mix.*`, `train.*` and `serve.*` hold for every one.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from peer.options.fields import Options, Rule, Value, build, rules, values
from peer.options.installed import Registry
from peer.options.methods import (
    AGGREGATORS,
    MIXERS,
    SOLVERS,
    Entry,
    MixOptions,
    Need,
    ServeOptions,
    TrainOptions,
)
from peer.options.solvers import PrivacyOptions
from protocol.errors import ConfigError
from protocol.suggest import did_you_mean

__all__ = [
    "PRESETS",
    "SLOTS",
    "Chosen",
    "Recipe",
    "converted",
    "defaults",
    "expand",
    "givers_of",
    "option_rules",
    "read",
]

SLOTS: Mapping[str, Registry] = {
    "mixer": Registry("mixer", MIXERS),
    "solver": Registry("solver", SOLVERS),
    "aggregator": Registry("aggregator", AGGREGATORS),
}
COMMON: Mapping[str, type[Options]] = {
    "mix": MixOptions,
    "train": TrainOptions,
    "serve": ServeOptions,
}

PRESETS: Mapping[str, Mapping[str, Value]] = {
    "kinfolk": {
        "mixer": "fedc2i",
        "solver": "fedconst",
        "aggregator": "craft",
        "serve.never_worse": True,
    },
    "fedc2i": {"mixer": "fedc2i", "solver": "sgd", "aggregator": "none"},
    "gossip": {"mixer": "fedavg", "solver": "sgd", "aggregator": "none"},
    "local": {"mixer": "local", "solver": "sgd", "aggregator": "none"},
    "fedconst": {"mixer": "replicated", "solver": "fedconst", "aggregator": "fedavg"},
    "fedavg": {"mixer": "replicated", "solver": "sgd", "aggregator": "fedavg"},
    "craft": {"mixer": "replicated", "solver": "sgd", "aggregator": "craft"},
    "fedavgm": {"mixer": "replicated", "solver": "sgd", "aggregator": "fedavgm"},
    "fednova": {"mixer": "replicated", "solver": "sgd", "aggregator": "fednova"},
    "afl": {"mixer": "replicated", "solver": "sgd", "aggregator": "afl"},
    "qfedavg": {"mixer": "replicated", "solver": "sgd", "aggregator": "qfedavg"},
    "fedfv": {"mixer": "replicated", "solver": "sgd", "aggregator": "fedfv"},
    "fedlf": {"mixer": "replicated", "solver": "sgd", "aggregator": "fedlf"},
    "config": {"mixer": "replicated", "solver": "sgd", "aggregator": "config"},
    "local+fedconst": {"mixer": "local", "solver": "fedconst", "aggregator": "none"},
    "fedconst+craft": {
        "mixer": "replicated",
        "solver": "fedconst",
        "aggregator": "craft",
        "aggregator.project": "fedconst",
    },
    "fedrep": {"mixer": "fedrep", "solver": "fedrep", "aggregator": "none"},
    "fedrod": {"mixer": "fedrod", "solver": "fedrod", "aggregator": "none"},
    "fedproto": {"mixer": "fedproto", "solver": "fedproto", "aggregator": "none"},
    "fedcalm": {"mixer": "fedcalm", "solver": "sgd", "aggregator": "none"},
    "fedic": {"mixer": "fedic", "solver": "fedic", "aggregator": "none"},
    "fedprox": {"mixer": "replicated", "solver": "fedprox", "aggregator": "fedavg"},
    "moon": {"mixer": "replicated", "solver": "moon", "aggregator": "fedavg"},
    "fedsam": {"mixer": "replicated", "solver": "fedsam", "aggregator": "fedavg"},
    "fedalign": {"mixer": "replicated", "solver": "fedalign", "aggregator": "fedavg"},
    "scaffold": {"mixer": "replicated", "solver": "scaffold", "aggregator": "scaffold"},
    "feddyn": {"mixer": "replicated", "solver": "feddyn", "aggregator": "feddyn"},
    "ditto": {"mixer": "replicated", "solver": "ditto", "aggregator": "fedavg"},
    "ditto+craft": {"mixer": "replicated", "solver": "ditto", "aggregator": "craft"},
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What fills a slot."""

    name: str
    entry: Entry
    options: Options

    @property
    def needs(self) -> Mapping[Need, str]:
        """What it needs with these options, and by which: " with project = fedconst", or empty."""
        found = dict.fromkeys(self.entry.needs, "")
        for (option, value), needs in self.entry.when.items():
            if values(self.options)[option] == value:
                found |= dict.fromkeys(needs - found.keys(), f" with {option} = {value}")
        return {need: found[need] for need in Need if need in found}  # in an order that stays


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A whole method, checked."""

    mixer: Chosen
    solver: Chosen
    aggregator: Chosen
    mix: MixOptions
    train: TrainOptions
    serve: ServeOptions

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({*self.mixer.needs, *self.solver.needs, *self.aggregator.needs})

    @property
    def privacy(self) -> PrivacyOptions | None:
        """How training hides single examples; None if it does not."""
        options = getattr(self.solver.options, "privacy", None)
        hides = isinstance(options, PrivacyOptions) and options.is_private
        return options if hides else None

    def flat(self) -> dict[str, Value]:
        """Every option with its value, by flat key; `read` is the inverse."""
        slots = {"mixer": self.mixer, "solver": self.solver, "aggregator": self.aggregator}
        flat: dict[str, Value] = {}
        for slot, chosen in slots.items():
            flat |= {slot: chosen.name} | _prefixed(slot, values(chosen.options))
        for section in COMMON:
            flat |= _prefixed(section, values(getattr(self, section)))
        return flat


def _prefixed(section: str, options: Mapping[str, Value]) -> dict[str, Value]:
    return {f"{section}.{name}": value for name, value in options.items()}


def expand(preset: str, explicit: Mapping[str, Value]) -> dict[str, Value]:
    """Complete what a person typed: every option of the method with its value, by flat key.

    Args:
        preset: a name of `PRESETS`.
        explicit: flat keys with values as typed (strings) or as a file gave them; they win. A slot
            that is filled otherwise than in the preset takes nothing from the preset's options.

    Raises:
        ConfigError: an unknown preset, method or option, or a value that is not allowed.
    """
    if preset not in PRESETS:
        raise ConfigError(f"there is no preset {preset!r}", hint=_suggest(preset, PRESETS))
    base = dict(PRESETS[preset])
    for slot in SLOTS:
        if explicit.get(slot, base[slot]) != base[slot]:
            base = {key: value for key, value in base.items() if not key.startswith(f"{slot}.")}
    return read(base | dict(explicit)).flat()


def defaults(preset: str) -> dict[str, Value]:
    """What `preset` stands for when nothing else is said."""
    return expand(preset, {})


def read(flat: Mapping[str, Value]) -> Recipe:
    """Check flat options and make a method of them; what is left out takes its default.

    Raises:
        ConfigError: an unknown or missing method, an unknown option, or a value not allowed.
    """
    names = {slot: _name(slot, flat) for slot in SLOTS}
    given = _given(flat, names)
    sections = {section: _section(section, given) for section in (*SLOTS, *COMMON)}
    chosen = {}
    for slot, name in names.items():
        entry = SLOTS[slot][name]
        chosen[slot] = Chosen(name, entry, build(entry.options, sections[slot]))
    _check_needs(chosen)
    _check_bars(chosen)
    mix = build(MixOptions, sections["mix"])
    if mix.buffers == "local" and Need.COMMON_START in chosen["mixer"].entry.gives:
        raise ConfigError(
            f"mixer = {chosen['mixer'].name} makes one model for all, of which mix.buffers = local "
            "would keep a part on each peer",
            hint="take mix.buffers = average",
        )
    return Recipe(
        **chosen,
        mix=mix,
        train=build(TrainOptions, sections["train"]),
        serve=build(ServeOptions, sections["serve"]),
    )


def converted(preset: str, explicit: Mapping[str, Value]) -> dict[str, Value]:
    """What a person typed, in its types; whether it fits the rest is not asked.

    Args:
        preset: a name of `PRESETS`, which fills the slots that `explicit` leaves open.
        explicit: as for `expand`.

    Raises:
        ConfigError: an unknown method or option, or a value that is not allowed.
    """
    names = {slot: _name(slot, {**PRESETS[preset], **explicit}) for slot in SLOTS}
    named = {slot: names[slot] for slot in SLOTS if slot in explicit}
    return {**named, **_given(explicit, names)}


def _given(flat: Mapping[str, Value], names: Mapping[str, str]) -> dict[str, Value]:
    """The options in `flat`, in their types."""
    declared = option_rules(names)
    for key in flat:
        if key not in declared and key not in SLOTS:
            raise ConfigError(f"there is no option {key!r} here", hint=_explain(key, declared))
    return {key: declared[key].read(key, raw) for key, raw in flat.items() if key in declared}


def _check_needs(chosen: Mapping[str, Chosen]) -> None:
    """Refuse a pair of which one needs what only methods that were not chosen give."""
    given = {need for part in chosen.values() for need in part.entry.gives}
    for slot, part in chosen.items():
        for need, way in part.needs.items():
            if need not in given and (givers := givers_of(need)):
                told = f"{slot} = {part.name}{way} needs {need.value}"
                raise ConfigError(told, hint=f"take {givers}")


def _check_bars(chosen: Mapping[str, Chosen]) -> None:
    """Refuse a part that needs what an option of another keeps back."""
    for slot, part in chosen.items():
        for option, barred in part.entry.bars.items():
            value = values(part.options)[option]
            if not (isinstance(value, float) and value > 0.0):
                continue
            for other_slot, other in chosen.items():
                for need in other.needs.keys() & barred:
                    fit = [
                        n for n in SLOTS[other_slot] if _would_fit(chosen, other_slot, n, barred)
                    ]
                    raise ConfigError(
                        f"{other_slot} = {other.name} needs {need.value}, which {slot} = "
                        f"{part.name} with {option} = {value} keeps back",
                        hint=f"take {other_slot} = {_one_of(fit)}; or {slot}.{option} = 0",
                    )


def _would_fit(
    chosen: Mapping[str, Chosen], slot: str, name: str, barred: AbstractSet[Need]
) -> bool:
    """Could this one, with its defaults, take the place of the one in its slot?"""
    entry = SLOTS[slot][name]
    if entry.needs & barred:
        return False
    try:
        _check_needs({**chosen, slot: Chosen(name, entry, entry.options())})
    except ConfigError:
        return False
    return True


def givers_of(need: Need) -> str:
    """Which methods give it: "mixer = relay or replicated"; empty if no method does."""
    by_slot = {
        slot: [name for name, entry in methods.items() if need in entry.gives]
        for slot, methods in SLOTS.items()
    }
    return "; ".join(f"{slot} = {_one_of(names)}" for slot, names in by_slot.items() if names)


def _one_of(names: Sequence[str]) -> str:
    if len(names) > 4:
        return f"{', '.join(names[:3])} or another that `peer methods` lists"
    return " or ".join(names)


def option_rules(names: Mapping[str, str]) -> dict[str, Rule]:
    """The declaration of every option, by flat key, where `names` fill the slots."""
    classes = {slot: SLOTS[slot][name].options for slot, name in names.items()} | dict(COMMON)
    return {
        f"{section}.{name}": rule
        for section, options in classes.items()
        for name, rule in rules(options).items()
    }


def _section(section: str, flat: Mapping[str, Value]) -> dict[str, Value]:
    prefix = f"{section}."
    return {key.removeprefix(prefix): v for key, v in flat.items() if key.startswith(prefix)}


def _name(slot: str, flat: Mapping[str, Value]) -> str:
    if slot not in flat:
        raise ConfigError(f"no {slot} is named", hint=f"choose one of: {', '.join(SLOTS[slot])}")
    name = str(flat[slot])
    SLOTS[slot].check(name)
    if name not in SLOTS[slot]:
        known = _suggest(name, SLOTS[slot])
        own = f"{'' if known.endswith('?') else '.'} One of somebody's own comes with a package"
        raise ConfigError(
            f"there is no {slot} {name!r}", hint=f"{known}{own}, which this host needs too"
        )
    return name


def _explain(key: str, declared: Mapping[str, Rule]) -> str:
    """Say where an option does exist, or which ones there are."""
    section, _, name = key.partition(".")
    owners = [
        method
        for method, entry in (SLOTS[section].items() if section in SLOTS else ())
        if name in rules(entry.options)
    ]
    if owners:
        return f"it belongs to {section} = {' or '.join(owners)}"
    return _suggest(key, declared)


def _suggest(word: str, known: Mapping[str, object]) -> str:
    return did_you_mean(word, known, cutoff=0.7) or f"there are: {', '.join(known)}"
