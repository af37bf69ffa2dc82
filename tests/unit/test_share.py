"""How results are written, as options: what is allowed, and what goes with what."""

import pytest

from peer.options.fields import Value
from peer.settings import Settings, complete
from peer.share import ShareOptions
from protocol.codecs import CODECS
from protocol.errors import ConfigError
from protocol.steps import MAX_TOPK, STEPS


def read(**options: Value) -> ShareOptions:
    return Settings.read(complete({k.replace("__", "."): v for k, v in options.items()})).share


@pytest.mark.parametrize("codec", [*CODECS, *STEPS])
def test_every_codec_can_be_named_and_only_those_of_steps_make_steps(codec: str) -> None:
    assert (read(share__codec=codec).stepper([]) is not None) == (codec in STEPS)


@pytest.mark.parametrize("topk", [0.0, -0.1, 0.51, 1.0])
def test_a_share_that_saves_nothing_is_refused(topk: float) -> None:
    with pytest.raises(ConfigError, match=r"share\.topk = .* must be a number in \(0, 0\.5\]"):
        read(share__codec="topk", share__topk=topk)
    assert read(share__codec="topk", share__topk=MAX_TOPK).topk == 0.5


@pytest.mark.parametrize("method", ["fedavg", "craft", "fedconst+craft", "scaffold"])
@pytest.mark.parametrize("mixer", ["replicated", "relay"])
def test_topk_is_refused_where_all_go_on_from_one_model(method: str, mixer: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(share__codec="topk", method=method, mixer=mixer)
    assert str(refused.value).startswith(f"share.codec = topk does not fit mixer = {mixer}: ")
    assert "take share.codec = delta or int8, or a method that mixes" in str(refused.value)
    assert read(share__codec="delta", method=method, mixer=mixer).codec == "delta"


@pytest.mark.parametrize("method", ["kinfolk", "gossip", "fedrep", "fedproto", "local"])
def test_topk_goes_with_every_method_that_mixes_neighbours(method: str) -> None:
    assert read(share__codec="topk", method=method).codec == "topk"
