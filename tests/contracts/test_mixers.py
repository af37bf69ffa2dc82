"""Every mixer of the registry keeps the contract of its slot."""

from collections.abc import Mapping

import pytest

from peer.methods import make_method
from peer.options.fields import Value
from peer.options.methods import MIXERS
from peer.options.recipe import expand
from tests.contracts.mixer import MixerContract

VARIANTS: Mapping[str, Mapping[str, Value]] = {
    "fedavg": {"mixer": "fedavg"},
    "fedavg, local buffers": {"mixer": "fedavg", "mix.buffers": "local"},
    "fedc2i": {"mixer": "fedc2i"},
    "fedc2i by client": {"mixer": "fedc2i", "mixer.level": "client"},
    "fedc2i by class": {"mixer": "fedc2i", "mixer.level": "class"},
    "fedc2i, absent classes by client": {"mixer": "fedc2i", "mixer.absent": "client"},
    "fedc2i, local buffers": {"mixer": "fedc2i", "mix.buffers": "local"},
    "fedc2i with memory": {"mixer": "fedc2i", "mixer.memory": 0.5},
    "fedc2i by class with memory": {"mixer": "fedc2i", "mixer.level": "class", "mixer.memory": 0.5},
    "fedcalm": {"mixer": "fedcalm"},
    "fedcalm, local buffers": {"mixer": "fedcalm", "mix.buffers": "local"},
    "fedcalm without multipliers": {"mixer": "fedcalm", "mixer.cap": 0.0},
    "fedic": {"mixer": "fedic", "solver": "fedic"},
    "fedic, all in one cluster": {"mixer": "fedic", "solver": "fedic", "mixer.cut": 2.0},
    "fedic, local buffers": {"mixer": "fedic", "solver": "fedic", "mix.buffers": "local"},
    "fedproto": {"mixer": "fedproto", "solver": "fedproto"},
    "fedproto, local buffers": {
        "mixer": "fedproto",
        "solver": "fedproto",
        "mix.buffers": "local",
    },
    "fedrep": {"mixer": "fedrep"},
    "fedrep by samples": {"mixer": "fedrep", "mixer.weights": "samples"},
    "fedrep, local buffers": {"mixer": "fedrep", "mix.buffers": "local"},
    "fedrod": {"mixer": "fedrod", "solver": "fedrod"},
    "local": {"mixer": "local"},
    "metropolis": {"mixer": "metropolis"},
    "relay": {"mixer": "relay", "aggregator": "fedavg"},
    "replicated": {"mixer": "replicated", "aggregator": "fedavg"},
}


def test_every_mixer_is_held_to_the_contract() -> None:
    assert {options["mixer"] for options in VARIANTS.values()} == set(MIXERS)


@pytest.mark.parametrize("variant", VARIANTS)
class TestMixers(MixerContract):
    @pytest.fixture(autouse=True)
    def choose(self, variant: str) -> None:
        self.mixer = make_method(expand("local", VARIANTS[variant])).mixer
