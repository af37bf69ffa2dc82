"""Experiment files: what they mean, and that every mistake is told with its file, table and key."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from peer.experiment import METHOD_TABLES, OPTION_TABLES, Experiment, RelayTable, load_experiment
from peer.options.attack import Attack
from protocol.errors import ConfigError
from protocol.ids import PeerId
from protocol.manifest import RUN_SECTIONS

ROOT = Path(__file__).resolve().parents[2]
DATA = '[data]\nshards = "shards"\n'


def load(folder: Path, text: str, **overrides: int) -> Experiment:
    path = folder / "tiny.toml"
    path.write_text(text)
    return load_experiment(path, {f"run.{key}": value for key, value in overrides.items()})


def test_a_file_with_data_alone_is_an_experiment(tmp_path: Path) -> None:
    experiment = load(tmp_path, DATA)
    assert experiment.name == "tiny"
    assert experiment.explicit == {}
    assert experiment.settings.method == "kinfolk"
    assert experiment.data.shards == tmp_path / "shards"
    assert experiment.peers == ()
    assert (experiment.founders, experiment.alone) == (None, False)
    assert experiment.launch.gpu == "0"


def test_name_in_a_table_is_the_tables_own_key(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        '[method]\nname = "fedc2i"\n[solver]\nname = "sgd"\nlr = 0.1\n[model]\nname = "cnn"\n'
        'norm = "batch"\n[run]\nname = "x"\nseed = 3\nrounds = 7\n[pace]\nquorum = 1.0\n' + DATA,
    )
    assert experiment.explicit == {
        "method": "fedc2i",
        "solver": "sgd",
        "solver.lr": 0.1,
        "model": "cnn",
        "model.norm": "batch",
        "run.seed": 3,
        "run.rounds": 7,
        "pace.quorum": 1.0,
    }
    assert experiment.name == "x"
    assert experiment.settings.run.rounds == 7
    assert experiment.settings.pace.quorum == 1.0


def test_a_relay_is_named_and_runs_on_the_cpu_unless_told(tmp_path: Path) -> None:
    assert load(tmp_path, DATA).relay is None
    assert load(tmp_path, "[relay]\n" + DATA).relay == RelayTable(name=PeerId("relay"), gpu="cpu")
    text = '[relay]\nname = "hub"\ngpu = "1"\naggregator = "fedavgm"\n[aggregator]\nlr = 0.5\n'
    experiment = load(tmp_path, text + DATA)
    assert experiment.relay == RelayTable(name=PeerId("hub"), gpu="1")
    assert experiment.explicit == {"aggregator": "fedavgm", "aggregator.lr": 0.5}


def test_what_is_made_follows_the_runs_seed_unless_it_has_its_own(tmp_path: Path) -> None:
    text = '[run]\nseed = 1\n[data]\nmake = "digits"\npeers = 4\n'
    made = load(tmp_path, text).data.make
    assert made is not None
    assert (made.sources, made.peers, made.seed) == (("digits",), 4, 1)
    again = load(tmp_path, text, seed=5)
    assert again.settings.run.seed == 5
    assert again.data.make is not None
    assert again.data.make.seed == 5
    own = load(tmp_path, text + "seed = 9\n", seed=5).data.make
    assert own is not None
    assert own.seed == 9


def test_a_peer_is_named_for_its_shard(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        DATA + '[[peer]]\ndata = "shard0"\n[[peer]]\nname = "b"\ndata = "x/s.npz"\ngpu = "cpu"\n',
    )
    assert [(peer.name, peer.data, peer.gpu) for peer in experiment.peers] == [
        ("shard0", "shard0", None),
        ("b", "x/s.npz", "cpu"),
    ]


def test_a_peer_may_attack(tmp_path: Path) -> None:
    one, two = load(
        tmp_path,
        DATA + '[[peer]]\ndata = "a"\nattack = "labelflip"\n[[peer]]\ndata = "b"\n',
    ).peers
    assert one.attack == Attack("labelflip", 1.0)
    assert two.attack is None


def test_a_graphs_file_is_found_beside_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("a b\nb c\n")
    experiment = load(tmp_path, '[run]\ntopology = "file:links"\n' + DATA)
    assert experiment.explicit["run.topology"] == "edges:a b,b c"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[data\n", "is not TOML"),
        ('[metod]\nname = "x"\n' + DATA, r"no table \[metod\].*did you mean method"),
        ("rounds = 3\n" + DATA, r"no table \[rounds\]"),
        ("run = 3\n" + DATA, r"\[run\] must be a table, got 3"),
        ("[run]\nround = 3\n" + DATA, r"\[run\] has no key 'round'.*did you mean rounds"),
        ("[run]\nrounds = 0\n" + DATA, "run.rounds = 0 cannot be used"),
        ('[run]\nrounds = "many"\n' + DATA, "run.rounds = many cannot be used"),
        ("[run]\nseed = [1]\n" + DATA, r"run.seed = \[1\]: must be a text, a number"),
        ("[run]\nfounders = 0\n" + DATA, "run.founders = 0: must be a whole number from 1"),
        ('[run]\nname = "a/b"\n' + DATA, "name 'a/b' cannot be used"),
        ('[run]\ntopology = "rink"\n' + DATA, "no topology 'rink'"),
        ('[method]\nname = "kinfok"\n' + DATA, "no method 'kinfok'"),
        ("[solver]\nlrr = 0.1\n" + DATA, "no option 'solver.lrr'.*solver.lr"),
        ("[solver]\nlr = -1.0\n" + DATA, r"solver.lr = -1.0 cannot be used"),
        ("[pace]\nquorom = 1.0\n" + DATA, "no option 'pace.quorom'.*pace.quorum"),
        ('[launch]\ngpu = "fast"\n' + DATA, "launch.gpu = 'fast': must be \"cpu\""),
        ("[launch]\nthreads = true\n" + DATA, "launch.threads = True: must be a whole number"),
        ("[compare]\nalone = 1\n" + DATA, "compare.alone = 1: must be true or false"),
        ("[[fault]]\nat_round = 1\n" + DATA, r"\[\[fault\]\] 1 has no kind"),
        (
            '[run]\nrounds = 4\n[[fault]]\nkind = "restart"\nat_round = 5\npeer = "a"\n' + DATA,
            r"\[\[fault\]\] 1 \(restart\) begins at round 5, and the run has 4 rounds",
        ),
        ('[[fault]]\nkind = "heal"\nat = 1\n' + DATA, r"1 \(heal\) has no key 'at'.*at_round"),
        ("[timing]\nsteps_s = 1\n" + DATA, r"\[timing\] has no key 'steps_s'.*step_s"),
        ("[timing]\nstep_s = true\n" + DATA, "timing.step_s = True: it must be a number in"),
        ("[timing]\nstep_s = -1\n" + DATA, "timing.step_s = -1 cannot be used"),
        ("[timing]\nstep_s = 1\ncalibrate = true\n" + DATA, "step_s and calibrate, which"),
        ("[timing]\ncalibrate = 1\n" + DATA, "timing.calibrate = 1: must be true or false"),
        ("[timing]\nbandwidth_mb_s = 5e-324\n" + DATA, "bandwidth_mb_s = 5e-324 cannot be used"),
        (
            '[[fault]]\nkind = "bandwidth"\nat_s = 1\nmbit = 5e-324\n' + DATA,
            r"1 \(bandwidth\) has mbit = 5e-324: it must be megabits a second, 0.000001 or more",
        ),
        ("[timing]\npeers = 3\n" + DATA, r"\[timing.peers\] must hold a table"),
        ("[timing.peers.a]\nmix = 1\n" + DATA, r"\[timing.peers.a\] has no key 'mix'"),
        ("[solver]\nlr = nan\n" + DATA, r"solver.lr = nan cannot be used: it must be a number in"),
        ("[pace]\ngrace_s = inf\n" + DATA, "pace.grace_s = inf cannot be used"),
        ("[method]\nname = nan\n" + DATA, "no method 'nan'"),
        ("[solver]\nlr = 0x" + "f" * 5000 + "\n" + DATA, "solver.lr is a whole number that does"),
        ('[relay]\naggregator = "kraft"\n' + DATA, "kraft"),
        ('[relay]\naggregator = ""\n' + DATA, "relay.aggregator = '': must be a text"),
        ("[relay]\naggregator = 0\n" + DATA, "relay.aggregator = 0: must be a text"),
        ('[relay]\ngpus = "1"\n' + DATA, r"\[relay\] has no key 'gpus'.*did you mean gpu"),
        (
            '[method]\nname = "fedc2i"\n[relay]\n' + DATA,
            r"\[relay\] has nothing to do: method fedc2i",
        ),
        (
            '[relay]\naggregator = "craft"\n[aggregator]\nname = "fedavg"\n' + DATA,
            r"\[aggregator\] name is 'fedavg', but \[relay\] aggregator is 'craft'",
        ),
        ('[relay]\nname = "a"\n[[peer]]\ndata = "a"\n' + DATA, r"\[relay\] and a \[\[peer\]\]"),
        ("", r"\[data\] must say where shards are"),
        (DATA + 'make = "digits"\n', r"\[data\] must say"),
        (DATA + "peers = 3\n", r"\[data\] has shards, which stands alone, and also peers"),
        (
            '[data]\nmake = "digits"\nsources = ["mnist"]\n',
            r"\[data\] has sources - here they stand in",
        ),
        ('[data]\nmake = "digits"\npears = 3\n', "unknown key of .data. 'pears'"),
        ('[data]\nmake = "letters"\n', "letters"),
        (DATA + '[[peer]]\nname = "a"\n', r"\[\[peer\]\] 1 has no data"),
        (DATA + "[peer]\ndata = 1\n", r"\[\[peer\]\] must be"),
        (DATA + '[[peer]]\ndata = "a"\ngpus = 1\n', "has no key 'gpus'.*did you mean gpu"),
        (DATA + '[[peer]]\ndata = "a"\n[[peer]]\ndata = "b/a"\n', "a stands 2 times"),
        (
            DATA + '[[peer]]\ndata = "a"\nattack = "signflp"\n',
            "peer 1.attack: there is no attack 'signflp'.*did you mean signflip",
        ),
        (
            DATA + '[[peer]]\ndata = "a"\nattack = "noise:0"\n',
            r"peer 1.attack: attack noise of strength 0 .*must be a number in \(0, 1000000\]",
        ),
        (DATA + '[[peer]]\ndata = "a"\nattack = 1\n', "peer 1.attack = 1: must be a text"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_file_table_and_key(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(tmp_path, text)
    assert "tiny.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def blocks() -> Iterator[tuple[str, str]]:
    """Every TOML in the documents that is of an experiment."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for text in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL):
            if not {"lab", "project"} & tomllib.loads(dedent(text)).keys():
                yield page.name, dedent(text)


def test_what_the_documents_show_is_taken_and_nothing_of_it_is_in_vain(tmp_path: Path) -> None:
    found = list(blocks())
    assert {"data.md", "defence.md", "experiment.md", "faults.md"} <= {name for name, _ in found}
    for name, text in found:
        assert load(tmp_path, text if "[data]" in text else text + DATA).unused == (), name


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/examples").glob("*.toml")), ids=str)
def test_every_example_is_taken_and_nothing_of_it_is_in_vain(path: Path) -> None:
    assert load_experiment(path).unused == ()


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_experiment(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_experiment(tmp_path)


def test_a_coordinator_takes_every_table_of_the_run_that_an_experiment_may_have() -> None:
    assert {*METHOD_TABLES, *OPTION_TABLES, "run"} <= RUN_SECTIONS
