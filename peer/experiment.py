"""An experiment file: what to run, on which data, by whom; read, checked, and made typed.

The tables of the run become lines of its manifest, where `name` stands for the table's own key:
`[solver] name = "sgd"` is `solver = sgd`, `[solver] lr = 0.1` is `solver.lr = 0.1`. Torch-free;
starts nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peer.data.options import MakeOptions
from peer.faults.feasible import check_rounds
from peer.faults.reading import read_faults
from peer.faults.table import Fault
from peer.options.attack import Attack
from peer.options.fields import Value, shown
from peer.options.recipe import defaults
from peer.options.tables import FLAG, TEXT, Allowed, keyed, one_of, take, whole
from peer.roles import Exchange
from peer.settings import Settings, complete
from peer.simulation.timing import TimingTable, read_timing
from protocol.errors import ConfigError, OperatorError
from protocol.ids import PeerId, peer_id
from protocol.suggest import of_all
from protocol.tomltext import read_toml
from protocol.topology import parse_topology
from protocol.wire.messages import MAX_MEMBERS

__all__ = [
    "MAX_PEERS",
    "DataTable",
    "Experiment",
    "LaunchTable",
    "PeerTable",
    "RelayTable",
    "load_experiment",
]

MAX_PEERS = MAX_MEMBERS  # of a view; how many run as processes, peer/launch says

METHOD_TABLES = ("method", "mixer", "solver", "aggregator")
OPTION_TABLES = ("train", "model", "mix", "serve", "pace", "admit", "share")
_RELAY_KEYS = ("name", "aggregator", "gpu")
_RUN_KEYS = ("name", "founders", "seed", "rounds", "topology", "participation")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """Shards that are there, or what to make them of: one of the two is set."""

    shards: Path | None = None  # folder
    make: MakeOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTable:
    name: PeerId
    data: str  # a shard's name in the folder of shards, or a path
    gpu: str | None = None  # None: as [launch] says
    attack: Attack | None = None  # for studies: how it harms the others


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayTable:
    """A node without data that aggregates; which aggregator it runs is a line of the manifest."""

    name: PeerId
    gpu: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTable:
    """How this machine runs it; no part of what the peers agree on."""

    threads: int = 0  # of each peer; 0 is the number of cores by that of peers
    gpu: str = "0"  # for every peer: cpu, or a number
    keep_state: bool = False  # leave snapshots and receive buffers behind
    restart: int = 0  # how often a node that dies by itself is started again
    log: str = "info"  # into each peer's peer.log


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    path: Path
    text: str  # of the file
    name: str  # of the run
    explicit: Mapping[str, Value]  # lines of the manifest that the file or an option set
    settings: Settings  # those, and the defaults of all others
    founders: int | None  # None: as many as there are peers
    data: DataTable
    peers: tuple[PeerTable, ...]  # empty: one for each shard
    relay: RelayTable | None
    alone: bool  # train the two models without neighbours, after the run
    launch: LaunchTable
    faults: tuple[Fault, ...] = ()
    timing: TimingTable = field(default_factory=TimingTable)  # of a simulation

    @property
    def consent(self) -> Mapping[str, Value]:
        """What each node must be told by its own person: a model of their own runs code."""
        return {"model": self.settings.model} if ":" in self.settings.model else {}

    @property
    def unused(self) -> tuple[str, ...]:
        """What was asked for and has no use in this run, a line for a person each."""
        told = list(self.settings.unused)
        if self.relay is None:
            told += _without_relay(self.settings, self.explicit)
        return tuple(told)


def load_experiment(path: Path, overrides: Mapping[str, Value] | None = None) -> Experiment:
    """Read an experiment file.

    Args:
        path: of the file; paths in it are relative to its folder.
        overrides: lines of the manifest that win over the file's, e.g. `run.seed`.

    Raises:
        ConfigError: it cannot be read, is not TOML, or holds a table, key or value that is not
            allowed; the text names the file, the table and the key.
    """
    text, tables = read_toml(path)
    try:
        return _experiment(path, text, tables, overrides or {})
    except OperatorError as error:
        raise ConfigError(f"{path}: {error.args[0]}", hint=error.hint) from None


def _experiment(
    path: Path, text: str, tables: Mapping[str, object], overrides: Mapping[str, Value]
) -> Experiment:
    others = ("data", "peer", "relay", "compare", "launch", "fault", "timing")
    known = ("run", *METHOD_TABLES, *OPTION_TABLES, *others)
    for name in tables:
        if name not in known:
            raise ConfigError(f"there is no table [{name}]", hint=of_all(name, known))
    run = _table(tables, "run", _RUN_KEYS)
    explicit = _manifest_lines(tables, run, path.parent) | dict(overrides)
    settings = Settings.read(complete(explicit))
    peers = _peers(tables.get("peer", []))
    faults = read_faults(tables.get("fault", []))
    check_rounds(faults, settings.run.rounds)
    founders = take(run, "run.founders", whole(1, MAX_PEERS), default=None)
    compare = _table(tables, "compare", ("alone",))
    return Experiment(
        path=path,
        text=text,
        name=peer_id(take(run, "run.name", TEXT, default=path.stem)),
        explicit=explicit,
        settings=settings,
        founders=founders,
        data=_data(tables, path.parent, settings.run.seed),
        peers=peers,
        relay=_relay(tables, settings, peers),
        alone=take(compare, "compare.alone", FLAG, default=False),
        launch=_launch(
            _table(tables, "launch", ("threads", "gpu", "keep_state", "restart", "log"))
        ),
        faults=faults,
        timing=read_timing(tables.get("timing", {})),
    )


def _manifest_lines(
    tables: Mapping[str, object], run: Mapping[str, object], base: Path
) -> dict[str, Value]:
    """Flatten the tables that the peers agree on."""
    lines: dict[str, Value] = {}
    for key in _RUN_KEYS[2:]:
        if key in run:
            lines[f"run.{key}"] = _scalar(f"run.{key}", run[key])
    if "run.topology" in lines:
        lines["run.topology"] = _topology(str(lines["run.topology"]), base)
    relay = _table(tables, "relay", _RELAY_KEYS)
    if "aggregator" in relay:
        lines["aggregator"] = take(relay, "relay.aggregator", TEXT, default="")
    for table in (*METHOD_TABLES, *OPTION_TABLES):
        for key, value in _table(tables, table, None).items():
            own = key == "name" and table in (*METHOD_TABLES, "model")
            line = table if own else f"{table}.{key}"
            if line in lines and lines[line] != value:
                raise ConfigError(
                    f"[{table}] {key} is {value!r:.60}, but [relay] {table} is {lines[line]!r:.60}",
                    hint="a run has one aggregator: name it once",
                )
            lines[line] = _scalar(f"{table}.{key}", value)
    return lines


def _topology(spec: str, base: Path) -> str:
    """Read a graph's file beside the experiment's; the spec that results needs no file."""
    kind, colon, file = spec.partition(":")
    return parse_topology(f"file:{base / file}" if kind == "file" and colon else spec).spec


def _data(tables: Mapping[str, object], base: Path, seed: int) -> DataTable:
    """Read [data]; what is made follows the run's seed unless the table has its own."""
    table = dict(_table(tables, "data", None))
    if ("shards" in table) == ("make" in table):
        raise ConfigError(
            "[data] must say where shards are or what to make them of",
            hint='shards = "DIR", or make = "digits" with the options of `peer data make`',
        )
    if "sources" in table:
        raise ConfigError(
            "[data] has sources", hint='here they stand in make = "digits", or a list'
        )
    if "shards" in table:
        if len(table) > 1:
            others = ", ".join(key for key in table if key != "shards")
            raise ConfigError(f"[data] has shards, which stands alone, and also {others}")
        return DataTable(shards=base / take(table, "data.shards", TEXT, default=""))
    table["sources"] = table.pop("make")
    return DataTable(make=MakeOptions.from_mapping({"seed": seed, **table}, base=base))


def _peers(raw: object) -> tuple[PeerTable, ...]:
    if not isinstance(raw, list) or len(raw) > MAX_PEERS:
        raise ConfigError(f"[[peer]] must be at most {MAX_PEERS} tables")
    peers = []
    for number, table in enumerate(raw, 1):
        where = f"peer {number}"
        checked = keyed(table, f"[[peer]] {number}", ("name", "data", "gpu", "attack"))
        data = take(checked, f"{where}.data", TEXT, default="")
        if not data:
            raise ConfigError(f"[[peer]] {number} has no data", hint='data = "shard0", or a path')
        name = peer_id(take(checked, f"{where}.name", TEXT, default=Path(data).stem))
        attack = take(checked, f"{where}.attack", TEXT, default="")
        peers.append(
            PeerTable(
                name=name,
                data=data,
                gpu=take(checked, f"{where}.gpu", _gpu, default=None),
                attack=_attack(where, attack) if "attack" in checked else None,
            )
        )
    names = [peer.name for peer in peers]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"[[peer]] {name} stands {names.count(name)} times")
    return tuple(peers)


def _attack(where: str, text: str) -> Attack:
    try:
        return Attack.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{where}.attack: {error.args[0]}", hint=error.hint) from None


def _relay(
    tables: Mapping[str, object], settings: Settings, peers: Sequence[PeerTable]
) -> RelayTable | None:
    if "relay" not in tables:
        return None
    table = _table(tables, "relay", _RELAY_KEYS)
    name = peer_id(take(table, "relay.name", TEXT, default="relay"))
    if name in {peer.name for peer in peers}:
        raise ConfigError(f"[relay] and a [[peer]] are both named {name}")
    if settings.recipe.aggregator.name == "none":
        raise ConfigError(
            f"[relay] has nothing to do: method {settings.method} has no aggregator",
            hint='name one, e.g. aggregator = "craft" in [relay]; `peer methods` lists them',
        )
    return RelayTable(name=name, gpu=take(table, "relay.gpu", _gpu, default="cpu"))


def _without_relay(settings: Settings, explicit: Mapping[str, Value]) -> Iterator[str]:
    """What only a relay would give a use."""
    flat, no_relay = settings.flat, "without a [relay]"
    mixer = f"mixer = {flat['mixer']}"
    if settings.exchange is Exchange.RELAY:
        yield f"{mixer} has nobody to ask {no_relay}: every round is a local one"
    if settings.exchange is Exchange.NEIGHBOURS:
        preset = defaults(settings.method)
        for key in sorted(explicit):
            if key.partition(".")[0] == "aggregator" and flat[key] not in ("none", preset.get(key)):
                yield (
                    f"{key} = {shown(flat[key])} has no use with {mixer} {no_relay}: "
                    "only a relay aggregates"
                )
    if flat.get("solver.reference") == "relay" and settings.exchange is not Exchange.COMMON:
        yield f"solver.reference = relay has no use {no_relay}: rows are held to the start's"


def _launch(table: Mapping[str, object]) -> LaunchTable:
    return LaunchTable(
        threads=take(table, "launch.threads", whole(0, 1024), default=0),
        gpu=take(table, "launch.gpu", _gpu, default="0"),
        keep_state=take(table, "launch.keep_state", FLAG, default=False),
        restart=take(table, "launch.restart", whole(0, 1000), default=0),
        log=take(table, "launch.log", one_of("warning", "info", "debug"), default="info"),
    )


# -- tables, keys and values ------------------------------------------------------------------


def _table(
    tables: Mapping[str, object], name: str, keys: Sequence[str] | None
) -> Mapping[str, object]:
    """Take a table, empty where it is missing; `keys` None allows any."""
    return keyed(tables.get(name, {}), f"[{name}]", keys)


def _scalar(key: str, value: object) -> Value:
    if not isinstance(value, str | int | float | bool):
        raise ConfigError(f"{key} = {value!r:.60}: must be a text, a number, or true or false")
    return value


_gpu = Allowed(
    '"cpu" or the number of a GPU, as a text',
    lambda v: isinstance(v, str) and (v == "cpu" or (v.isdecimal() and len(v) <= 3)),
)
