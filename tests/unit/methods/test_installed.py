"""Methods of installed packages: found, checked, refused by name; and the example that is shown."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from peer.methods import make_method
from peer.options.entry import Entry, Need
from peer.options.fields import Value
from peer.options.installed import GROUPS, Registry
from peer.options.mixers import MIXERS
from peer.options.recipe import SLOTS, expand, read
from protocol.errors import ConfigError
from tests.installed import EXAMPLE, install, install_project
from tests.unit.methods.making import contribution
from tests.unit.training.classroom import write_digits

ROOT = Path(__file__).parents[3]
GROUP = GROUPS["mixer"]
PLAIN = """
from peer.options.entry import Entry, NoOptions
ENTRY = Entry(NoOptions, "a mean", factory="{factory}")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages on the path, forgotten afterwards."""
    before = set(sys.modules)
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def mixers() -> Registry:
    return Registry("mixer", MIXERS)


def bring(site: Path, name: str, text: str, *, point: str = "", package: str = "a-package") -> None:
    module = f"{package.replace('-', '_')}_{name}"
    install(site, package, {GROUP: {name: point or f"{module}:ENTRY"}}, {module: text})


ONLY = """
from dataclasses import dataclass
from peer.options.entry import Entry
from peer.options.fields import Only, choice, flag, number

@dataclass(frozen=True)
class Options:
    q: float = number(1.0, "[0, 2]", "one", only=Only({only}))
    r: float = number(1.0, "[0, 2]", "another")
    s: str = choice("a", "a | b", "words")
    t: bool = flag("true", "yes or no")

ENTRY = Entry(Options, "mean", factory="a:B")
"""


def test_without_packages_there_are_the_own_methods_in_their_order() -> None:
    assert list(mixers()) == list(MIXERS)
    assert len(mixers()) == len(MIXERS)
    assert not mixers().faults
    assert set(GROUPS) == set(SLOTS)


def test_the_example_is_found_with_its_options_and_its_package(site: Path) -> None:
    install_project(site, EXAMPLE)
    found = mixers()
    assert list(found) == [*MIXERS, "median"]
    assert found["median"].package == "package kinfolk-median 1.0"
    assert found["median"].options().own_votes == 1  # type: ignore[attr-defined]
    found.check("median")
    found.check("fedavg")


def test_an_installed_aggregator_makes_one_model_of_all_without_saying_so(site: Path) -> None:
    point = {GROUPS["aggregator"]: {"mine": "mine_agg:ENTRY"}}
    install(site, "mine", point, {"mine_agg": PLAIN.format(factory="mine_agg:Mine")})
    own: dict[str, Entry] = {}
    assert Registry("aggregator", own)["mine"].gives == {Need.AGGREGATE}


@pytest.mark.parametrize(
    ("name", "text", "point", "told"),
    [
        ("fedavg", PLAIN, "", "brings one of that name, which is Kinfolk's own"),
        ("Mean", PLAIN, "", "a name is lower-case letters, digits"),
        ("mean", "1 / 0", "", "importing a_package_mean:ENTRY failed: ZeroDivisionError"),
        ("mean", PLAIN, "nowhere:ENTRY", "importing nowhere:ENTRY failed: ModuleNotFoundError"),
        ("mean", "ENTRY = 3", "", "a_package_mean:ENTRY is a int, must be a peer.options.entry"),
        ("mean", PLAIN.replace("{factory}", "Mean"), "", "has factory = 'Mean', must be like"),
        (
            "mean",
            PLAIN.replace("(NoOptions", "(int"),
            "",
            "no dataclass of peer.options.fields with defaults",
        ),
        (
            "mean",
            PLAIN.replace('mean",', 'mean", when={{("q", 1): frozenset()}},'),
            "",
            "needs more when q = 1, which is no option",
        ),
        ("mean", ONLY.replace("{only}", '"other", "a"'), "", "q only with other = a, which is no"),
        ("mean", ONLY.replace("{only}", '"r", "a"'), "", "q only with r = a: 'a' is not an interv"),
        ("mean", ONLY.replace("{only}", '"s", "a | c"'), "", "s = a or c: 'c' is none of a | b"),
        ("mean", ONLY.replace("{only}", '"s", "(0, 1)"'), "", "'(0, 1)' is none of a | b"),
        ("mean", ONLY.replace("{only}", '"t", "yes"'), "", "'yes' is none of true | false"),
        (
            "mean",
            PLAIN.replace("NoOptions\n", "Need, NoOptions\n").replace(
                'mean",', 'mean", gives=frozenset({{Need.COMMON_START}}),'
            ),
            "",
            "which only mixers relay and replicated do",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_package(
    site: Path, name: str, text: str, point: str, told: str
) -> None:
    bring(site, name, text.format(factory="a:B") if "{factory}" in text else text, point=point)
    found = mixers()
    assert list(found) == list(MIXERS)  # and hinders no other
    with pytest.raises(ConfigError, match=r"package a-package 1\.0") as refused:
        found.check(name)
    assert str(refused.value).startswith(f"mixer {name!r} cannot be used: ")
    assert told in str(refused.value)
    assert refused.value.hint == "mend or remove that package"


def test_two_packages_with_one_name_are_refused(site: Path) -> None:
    text = PLAIN.format(factory="a:B")
    bring(site, "mean", text, package="one")
    bring(site, "mean", text, package="other")
    with pytest.raises(ConfigError, match=r"package one 1\.0 and package other 1\.0 bring one"):
        mixers().check("mean")


def test_a_name_that_nobody_brings_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"there is no mixer 'median' - .* comes with a package"):
        expand("gossip", {"mixer": "median"})


# -- used ---------------------------------------------------------------------------------------


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a new process would find: `SLOTS` as they are with what is on the path."""
    for slot, own in SLOTS.items():
        fresh = Registry(slot, own._own)
        monkeypatch.setitem(SLOTS, slot, fresh)
    return site


def flat(**parts: Value) -> dict[str, Value]:
    given = {key.replace("__", "."): value for key, value in parts.items()}
    return expand("gossip", given)


def test_options_of_an_installed_method_are_typed_checked_and_completed(installed: Path) -> None:
    install_project(installed, EXAMPLE)
    assert flat(mixer="median")["mixer.own_votes"] == 1
    assert flat(mixer="median", mixer__own_votes="3")["mixer.own_votes"] == 3
    with pytest.raises(ConfigError, match=r"own_votes = 0 cannot be used: it must be a whole"):
        flat(mixer="median", mixer__own_votes=0)
    with pytest.raises(ConfigError, match="belongs to mixer = median"):
        flat(mixer__own_votes=3)


def test_the_algorithm_is_made_from_the_options(installed: Path) -> None:
    install_project(installed, EXAMPLE)
    method = make_method(flat(mixer="median", mixer__own_votes=2))
    assert "Median(options=MedianOptions(own_votes=2))" in repr(method.mixer)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cannot be made by a_package_mean:Mean: AttributeError"),
        ("class Mean: ...", r"cannot be made by a_package_mean:Mean: TypeError"),
        ("class Mean:\n  def __init__(self, options): ...", r"has no init\(\)"),
    ],
)
def test_an_algorithm_that_is_none_is_refused(installed: Path, text: str, told: str) -> None:
    bring(installed, "mean", PLAIN.format(factory="a_package_mean:Mean") + text)
    with pytest.raises(ConfigError, match=told) as refused:
        make_method(flat(mixer="mean"))
    assert "mixer 'mean' of package a-package 1.0" in str(refused.value)


def test_an_installed_solver_and_aggregator_fill_their_slots(installed: Path) -> None:
    text = """
from peer.options.entry import Entry, NoOptions
SOLVER = Entry(NoOptions, "sgd", factory="mine_torch:solver")
AGGREGATOR = Entry(NoOptions, "mean", factory="mine_torch:aggregator")
"""
    algorithms = """
from peer.aggregators.fedavg import FedAvgServer
from peer.solvers.sgd import Sgd
def solver(options): return Sgd()
def aggregator(options): return FedAvgServer()
"""
    points = {
        GROUPS["solver"]: {"mine": "mine_entries:SOLVER"},
        GROUPS["aggregator"]: {"mine": "mine_entries:AGGREGATOR"},
    }
    install(installed, "mine", points, {"mine_entries": text, "mine_torch": algorithms})
    method = make_method(flat(mixer="replicated", solver="mine", aggregator="mine"))
    assert type(method.solver).__name__ == "Sgd"
    assert type(method.aggregator).__name__ == "FedAvgServer"
    assert read(method.recipe.flat()) == method.recipe


# -- as commands ----------------------------------------------------------------------------------


def peer(site: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-m", "peer", *words],
        cwd=cwd or site,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_methods_lists_what_is_installed_and_what_is_broken(tmp_path: Path) -> None:
    install_project(tmp_path, EXAMPLE)
    bring(tmp_path, "fedrep", PLAIN.format(factory="a:B"))
    bring(tmp_path, "slow", "import torch", package="slow")
    (tmp_path / "torch.py").write_text("")  # quicker than the real one
    listed = peer(tmp_path, "methods")
    (line,) = (line for line in listed.stdout.splitlines() if " median " in line)
    assert line.split(maxsplit=2)[::2] == [
        "mixer",
        "median of every coordinate (package kinfolk-median 1.0)",
    ]
    fedrep, slow = listed.stderr.splitlines()
    told = "Warning: mixer 'fedrep' cannot be used: package a-package 1.0 brings one of that name"
    assert fedrep.startswith(told)
    told = "Warning: mixer 'slow' cannot be used: package slow 1.0: slow_slow:ENTRY imports torch"
    assert slow.startswith(told)
    shown = peer(tmp_path, "methods", "median")
    assert "mixer.own_votes  1  [1, 100]  how often the own model counts" in shown.stdout
    refused = peer(tmp_path, "methods", "fedrep")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


EXPERIMENT = """
[run]
rounds = 1
[model]
name = "mlp"
[method]
name = "gossip"
[mixer]
name = "median"
own_votes = {votes}
[pace]
quorum = 1.0
[data]
shards = "shards"
[[peer]]
data = "a"
[[peer]]
data = "b"
[[peer]]
data = "c"
[launch]
gpu = "cpu"
keep_state = true
"""


@pytest.mark.long
def test_an_installed_mixer_plays_a_run_and_decides_what_is_mixed(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install_project(site, EXAMPLE)
    shards = tmp_path / "shards"
    shards.mkdir()
    for number, name in enumerate("abc"):
        write_digits(shards / f"{name}.npz", first=150 * number, num=32, num_test=10)
    digests = []
    for votes in (1, 100):  # with a hundred votes nobody else is heard: local rounds
        (tmp_path / "e.toml").write_text(EXPERIMENT.format(votes=votes))
        rounds = ["--rounds", "2", "--force"]
        done = peer(site, "simulate", "e.toml", "--out", "run", *rounds, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        digests.append(
            {(tmp_path / "run" / name / "model.safetensors").read_bytes() for name in "abc"}
        )
    assert not digests[0] & digests[1]
    missing = peer(tmp_path, "simulate", "e.toml", "--out", "other", cwd=tmp_path)
    assert missing.returncode == 2
    assert "there is no mixer 'median'" in missing.stderr
    assert "comes with a package, which this host needs too" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_the_median_is_the_one_of_a_naive_twin(installed: Path) -> None:
    install_project(installed, EXAMPLE)
    make_method(flat(mixer="median"))
    mixer = import_module("kinfolk_median.mixer").Median()
    points = {"a": [1.0, 5.0], "b": [2.0, -1.0], "c": [9.0, 0.0]}
    own, *others = (contribution(n, {"w": torch.tensor(p)}) for n, p in points.items())
    mixed, _ = mixer.mix({}, own, others, None)
    assert mixed.start.params["w"].tolist() == [2.0, 0.0]
    assert mixed.client_weight == {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}
