"""The run's manifest as this peer understands it: flat keys checked, completed, and made typed.

Torch-free: a node completes and compares settings, its trainer obeys them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from peer.admit import AdmitOptions
from peer.data.card import MAX_CHANNELS, MAX_CLASSES
from peer.data.shard import MAX_SIDE
from peer.faults.plan import NO_FAULTS
from peer.options.entry import Need
from peer.options.fields import Options, Rule, Value, build, check, choice, rules, whole
from peer.options.fields import number as real
from peer.options.models import check_model
from peer.options.recipe import PRESETS, SLOTS, Recipe, converted, expand, option_rules, read
from peer.pace import Pace
from peer.roles import Exchange, exchange_of
from peer.share import ShareOptions
from peer.unused import refuse_unused, unused
from protocol.errors import ConfigError, RefusedError
from protocol.suggest import did_you_mean
from protocol.topology import DEFAULT_TOPOLOGY, Topology, check_carried, parse_topology
from protocol.wire.messages import WIRE_VERSION

__all__ = [
    "DEFAULT_MODEL",
    "DEFAULT_PRESET",
    "FAULTS",
    "Settings",
    "advised",
    "complete",
    "typed",
    "wished",
]

DEFAULT_PRESET = "kinfolk"
DEFAULT_MODEL = "lenet5"
FAULTS = "faults"  # key of what the nodes must have alike of their fault tables


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    seed: int = whole(0, "[0, 2147483647]", "everything random derives from it")
    rounds: int = whole(40, "[1, 1000000]", "rounds to play")
    participation: float = real(1.0, "(0, 1]", "share of the peers that is active in a round")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    norm: str = choice("group", "group | batch", "normalisation layers, where the model has any")

    def __post_init__(self) -> None:
        check(self)


_GROUPS: Mapping[str, type[Options]] = {
    "run": RunOptions,
    "model": ModelOptions,
    "pace": Pace,
    "admit": AdmitOptions,
    "share": ShareOptions,
}
_METHOD_SECTIONS = ("mixer", "solver", "aggregator", "mix", "train", "serve")
# Any text; checked where it is used.
_WORDS = ("method", "model", "run.topology", "data.input", FAULTS)
_COUNTS = ("wire", "data.classes")
_NEEDED = ("method", "model", "run.topology")  # beside those that a recipe needs


def _group_rules() -> dict[str, Rule]:
    return {f"{g}.{name}": rule for g, cls in _GROUPS.items() for name, rule in rules(cls).items()}


def _all_rules(flat: Mapping[str, Value]) -> dict[str, Rule]:
    """The declaration of every line that has one, with the methods that this manifest names."""
    return _group_rules() | option_rules({slot: str(flat[slot]) for slot in SLOTS})


def _is_of_method(key: str) -> bool:
    return key.split(".", 1)[0] in _METHOD_SECTIONS


def complete(explicit: Mapping[str, Value]) -> dict[str, Value]:
    """Every key of a manifest with its value: what was typed, and the defaults for the rest.

    Raises:
        ConfigError: an unknown key, a value that is not allowed, parts that do not fit, or a line
            that another one of its table leaves without use.
    """
    flat = _whole(explicit)
    refuse_unused(flat, _all_rules(flat), flat.keys())
    return flat


def wished(explicit: Mapping[str, Value]) -> dict[str, Value]:
    """What a person typed, in the types of a manifest, for a run whose other lines others may set.

    Raises:
        ConfigError: as `complete` with defaults for the rest; but a line that only another one
            leaves without use is refused where that one was typed too.
    """
    flat = _whole(explicit)
    refuse_unused(flat, _all_rules(flat), explicit.keys())
    return {key: flat[key] for key in explicit}


def _whole(explicit: Mapping[str, Value]) -> dict[str, Value]:
    flat: dict[str, Value] = {key: rule.default for key, rule in _group_rules().items()}
    flat |= {"wire": WIRE_VERSION, "run.topology": DEFAULT_TOPOLOGY, "model": DEFAULT_MODEL}
    flat |= {"method": DEFAULT_PRESET, FAULTS: NO_FAULTS, **_of_no_method(explicit)}
    flat |= expand(str(flat["method"]), {k: v for k, v in explicit.items() if _is_of_method(k)})
    # What a manifest carries needs no file: other hosts do not have it.
    flat["run.topology"] = parse_topology(str(flat["run.topology"])).spec
    check_model(str(flat["model"]), str(flat["model.norm"]))
    Settings.read(flat)
    return dict(sorted(flat.items()))


def typed(explicit: Mapping[str, Value]) -> dict[str, Value]:
    """What a person typed, in the types of a manifest, for a run whose rest is not known yet.

    Raises:
        ConfigError: an unknown key, or a value that is not allowed.
    """
    flat = _of_no_method(explicit)
    if "run.topology" in flat:  # as the run will have it: other hosts have no file of ours
        flat["run.topology"] = parse_topology(str(flat["run.topology"])).spec
    preset = str(flat.get("method", DEFAULT_PRESET))
    return flat | converted(preset, {k: v for k, v in explicit.items() if _is_of_method(k)})


def advised(reason: str) -> str:
    """A refusal, with what to do about it where that is nothing that was typed in so many words."""
    if any(line.startswith(f"{FAULTS}: ") for line in reason.split("; ")):
        return f"{reason} - give the same file with --faults at every node of the run"
    return reason


def _of_no_method(explicit: Mapping[str, Value]) -> dict[str, Value]:
    """The lines that hold for every method, and the name of the preset."""
    declared = _group_rules()
    flat: dict[str, Value] = {}
    for key, value in explicit.items():
        if key in declared:
            flat[key] = declared[key].read(key, value)
        elif key in _WORDS:
            flat[key] = str(value)
        elif key in _COUNTS:
            flat[key] = _count(key, value)
        elif not _is_of_method(key):
            known = [*declared, *_WORDS, *_COUNTS, *SLOTS]
            close = get_close_matches(key, known, n=3)
            hint = f"close to it: {', '.join(close)}" if close else "docs/design.md lists them all"
            raise ConfigError(f"there is no option {key!r}", hint=hint)
    if (preset := flat.get("method", DEFAULT_PRESET)) not in PRESETS:
        hint = did_you_mean(str(preset), PRESETS) or "`peer methods` lists them all"
        raise ConfigError(f"there is no method {preset!r}", hint=hint)
    return flat


def _count(key: str, value: Value) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise ConfigError(
            f"{key} = {text:.60} cannot be used: it must be a whole number from 0 to 999999"
        )
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    run: RunOptions
    topology: Topology
    method: str
    recipe: Recipe
    model: str
    model_options: ModelOptions
    pace: Pace
    admit: AdmitOptions
    share: ShareOptions
    input_shape: tuple[int, ...]  # channels, height, width; empty while no data fixes it
    num_classes: int  # 0 while no data fixes it
    flat: Mapping[str, Value]

    @property
    def exchange(self) -> Exchange:
        """Whom a peer asks in a round."""
        return exchange_of(self.recipe.mixer.name)

    @property
    def unused(self) -> tuple[str, ...]:
        """What was asked for and has no use in this run, a line for a person each."""
        declared = _all_rules(self.flat)
        whole = {key: rule.default for key, rule in declared.items()} | dict(self.flat)
        return unused(whole, declared, self.exchange)

    @classmethod
    def read(cls, flat: Mapping[str, Value]) -> "Settings":
        """Make a whole manifest typed.

        Raises:
            ConfigError: a value is not allowed, or a line is missing that has no default.
            RefusedError: the run speaks another version of the wire.
        """
        wire = flat.get("wire", WIRE_VERSION)
        if wire != WIRE_VERSION:
            raise RefusedError(
                f"the run speaks wire version {wire}, this peer speaks {WIRE_VERSION}",
                hint="install the same version of kinfolk on every host",
            )
        for key in _NEEDED:
            if key not in flat:
                raise ConfigError(
                    f"the run's manifest has no line {key}",
                    hint="whoever settled it runs another version, or does harm: start a new run",
                )
        groups = {group: _group(group, flat) for group in _GROUPS}
        check_carried(str(flat["run.topology"]))
        topology = parse_topology(str(flat["run.topology"]))
        recipe = read({k: v for k, v in flat.items() if _is_of_method(k)})
        if Need.FULL_MESH in recipe.needs and topology.spec != DEFAULT_TOPOLOGY:
            raise ConfigError(
                f"mixer = {recipe.mixer.name} needs {Need.FULL_MESH.value}, which run.topology = "
                f"{topology.spec} does not give, should there be no relay",
                hint="take run.topology = full; or mixer = relay, and have one in the run",
            )
        pace = build(Pace, groups["pace"])
        exchange = exchange_of(recipe.mixer.name)
        if pace.mode == "async" and exchange not in {Exchange.NEIGHBOURS, Exchange.NONE}:
            raise ConfigError(
                f"pace.mode = async does not fit mixer = {recipe.mixer.name}: one common model "
                "needs results of one round, from one start",
                hint="take pace.mode = sync, or a method that mixes its neighbours, as kinfolk",
            )
        share = build(ShareOptions, groups["share"])
        if share.codec == "topk" and exchange in {Exchange.COMMON, Exchange.RELAY}:
            raise ConfigError(
                f"share.codec = topk does not fit mixer = {recipe.mixer.name}: what a round does "
                "not send is kept by a peer that goes on from its own result, and here all go on "
                "from one common model",
                hint="take share.codec = delta or int8, or a method that mixes its neighbours, as "
                "kinfolk",
            )
        return cls(
            run=build(RunOptions, groups["run"]),
            topology=topology,
            method=str(flat["method"]),
            recipe=recipe,
            model=str(flat["model"]),
            model_options=build(ModelOptions, groups["model"]),
            pace=pace,
            admit=build(AdmitOptions, groups["admit"]),
            share=share,
            input_shape=_shape(str(flat.get("data.input", ""))),
            num_classes=_classes(flat.get("data.classes", 0)),
            flat=dict(flat),
        )


def _group(group: str, flat: Mapping[str, Value]) -> dict[str, Value]:
    declared = rules(_GROUPS[group])
    return {
        name: rule.read(f"{group}.{name}", flat[f"{group}.{name}"])
        for name, rule in declared.items()
        if f"{group}.{name}" in flat
    }


def _classes(value: Value) -> int:
    count = _count("data.classes", value)
    if count > MAX_CLASSES:
        raise ConfigError(
            f"data.classes = {count} cannot be used: it must be a whole number from 0 to "
            f"{MAX_CLASSES}"
        )
    return count


def _shape(text: str) -> tuple[int, ...]:
    """Channels, height and width, as a shard may have them: (3,); () of an empty text."""
    if not text:
        return ()
    parts = text.split("x")
    sides = [int(p) if p.isascii() and p.isdecimal() and len(p) <= 5 else 0 for p in parts]
    limits = (MAX_CHANNELS, MAX_SIDE, MAX_SIDE)
    if len(sides) != 3 or not all(0 < n <= most for n, most in zip(sides, limits, strict=True)):
        raise ConfigError(
            f"data.input = {text:.60} cannot be used: it must be like 3x28x28, at most "
            f"{'x'.join(map(str, limits))}"
        )
    return tuple(sides)
