"""`peer methods`: everything that can be typed, with its options, for people and for grep."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from peer.cli import main
from peer.options.recipe import PRESETS, SLOTS, defaults


def shown(*arguments: str) -> list[str]:
    done = CliRunner().invoke(main, ["methods", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


def test_every_preset_and_every_method_of_every_slot_has_one_line() -> None:
    expected = [("preset", name) for name in PRESETS]
    expected += [(slot, name) for slot, entries in SLOTS.items() for name in entries]
    lines = [line.split(maxsplit=2) for line in shown()]
    assert [(kind, name) for kind, name, _ in lines] == expected
    assert all(len(text) > 10 for _, _, text in lines)


def test_a_preset_is_shown_with_its_parts() -> None:
    (line,) = (line for line in shown() if line.split()[:2] == ["preset", "kinfolk"])
    assert "fedc2i + fedconst + craft: " in line
    assert line.endswith("(the default)")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_shown_with_every_option_and_its_default(preset: str) -> None:
    lines = {line.split()[0]: line.split()[1] for line in shown(preset) if "." in line.split()[0]}
    flat = {key: value for key, value in defaults(preset).items() if "." in key}
    assert lines.items() >= {key: str(value).lower() for key, value in flat.items()}.items()


def test_an_option_is_shown_with_what_is_allowed_and_what_it_is_for() -> None:
    (line,) = (line for line in shown("fedprox") if line.startswith("solver.mu"))
    assert line.split(maxsplit=1) == [
        "solver.mu",
        "0.01     [0, 1000000]     strength of the pull to the start; 0 is sgd",
    ]


def test_a_name_of_several_slots_is_shown_for_each() -> None:
    heads = [line.partition(":")[0] for line in shown("fedavg") if line.split()[1] == "fedavg:"]
    assert heads == ["preset fedavg", "mixer fedavg", "aggregator fedavg"]


def test_what_a_method_needs_is_told_with_who_gives_it() -> None:
    text = "\n".join(shown("craft"))
    assert "with project = fedconst, needs one start point for the training of all peers" in text
    assert "(mixer = relay or replicated)" in text


def test_fedic_is_labelled_a_reconstruction_wherever_it_shows() -> None:
    listed = [line for line in shown() if line.split()[1] == "fedic"]
    heads = [line for line in shown("fedic") if line.split()[1] == "fedic:"]
    assert len(listed) == len(heads) == 3  # preset, mixer, solver
    assert all("FedIC (reconstruction)" in line for line in (*listed, *heads))


def test_a_name_that_does_not_exist_is_met_with_one_that_does() -> None:
    done = CliRunner().invoke(main, ["methods", "crfat"], standalone_mode=False)
    assert str(done.exception) == "there is no method 'crfat' - did you mean craft?"


def test_listing_methods_loads_no_torch() -> None:
    code = (
        "import sys; from peer.cli import main; main(['methods'], standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert run.returncode == 0


def test_what_a_preset_sets_reads_as_in_an_experiment_file() -> None:
    assert shown("kinfolk")[1].endswith("aggregator = craft, serve.never_worse = true")
