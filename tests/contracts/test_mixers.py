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
    "local": {"mixer": "local"},
    "relay": {"mixer": "relay"},
    "replicated": {"mixer": "replicated", "aggregator": "fedavg"},
}


def test_every_mixer_is_held_to_the_contract() -> None:
    assert {options["mixer"] for options in VARIANTS.values()} == set(MIXERS)


@pytest.mark.parametrize("variant", VARIANTS)
class TestMixers(MixerContract):
    @pytest.fixture(autouse=True)
    def choose(self, variant: str) -> None:
        self.mixer = make_method(expand("local", VARIANTS[variant])).mixer
