"""BatchNorm between two peers: averaged with the mixer's weights, or personal."""

from typing import Literal

import pytest
import torch

from peer.mixers.base import Mixer
from peer.mixers.buffers import WithBuffers
from peer.mixers.fedavg import FedAvg
from peer.mixers.fedc2i import FedC2I
from peer.mixers.local import Local
from peer.probe import LocalProbe
from peer.solvers.sgd import Sgd
from peer.task import LocalTask
from protocol.params import NO_STATE
from protocol.round import Contribution, Trained
from tests.unit.methods.making import contribution, silent, small_model, small_task

MODEL = small_model("batch")
MEAN, COUNT, SCALE = "body.1.running_mean", "body.1.num_batches_tracked", "body.1.weight"


def trained_peer(sender: str, seed: int, size: int) -> tuple[LocalTask, Contribution]:
    task = small_task(MODEL, size=size, seed=seed)
    trained, _ = Sgd().train(NO_STATE, MODEL.start, task, seed, silent)
    made = contribution(
        sender, trained.params, buffers=trained.buffers, num_examples=trained.num_examples
    )
    return task, made


def test_averaged_buffers_follow_the_mixers_weights() -> None:
    task, own = trained_peer("a", 1, size=8)
    _, other = trained_peer("b", 2, size=24)
    probe = LocalProbe.draw(task, own.trained.buffers, 0, 1)
    mixed, _ = WithBuffers(FedAvg(), "average").mix(NO_STATE, own, [other], probe)
    expected = 0.25 * own.trained.buffers[MEAN] + 0.75 * other.trained.buffers[MEAN]
    torch.testing.assert_close(mixed.start.buffers[MEAN], expected)
    assert mixed.start.buffers[COUNT].item() == 6  # of 2 and 6 batches


def test_local_layers_never_leave_and_never_change_by_mixing() -> None:
    task, own = trained_peer("a", 1, size=8)
    _, other = trained_peer("b", 2, size=8)
    mixer = WithBuffers(FedC2I(), "local")
    shared = mixer.share(other.trained, MODEL.head)
    assert shared is not None
    assert shared.buffers == {}
    assert sorted(set(other.trained.params) - set(shared.params)) == ["body.1.bias", SCALE]
    sent = contribution("b", shared.params)
    probe = LocalProbe.draw(task, own.trained.buffers, 0, 1)
    mixed, _ = mixer.mix(NO_STATE, own, [sent], probe)
    assert list(mixed.start.params) == list(own.trained.params)
    assert mixed.start.params[SCALE] is own.trained.params[SCALE]
    assert mixed.start.buffers is own.trained.buffers
    assert not torch.equal(mixed.start.params["head.weight"], own.trained.params["head.weight"])


@pytest.mark.parametrize("policy", ["average", "local"])
@pytest.mark.parametrize("mixer", [FedAvg(), FedC2I(), Local()], ids=lambda m: type(m).__name__)
def test_two_peers_with_batchnorm_train_on_from_their_mix(
    mixer: Mixer, policy: Literal["average", "local"]
) -> None:
    task, own = trained_peer("a", 1, size=9)  # the last batch has one example
    _, other = trained_peer("b", 2, size=9)
    whole = WithBuffers(mixer, policy)
    shared: Trained | None = whole.share(other.trained, MODEL.head)
    others = [] if shared is None else [contribution("b", shared.params, buffers=shared.buffers)]
    probe = LocalProbe.draw(task, own.trained.buffers, 0, 1)
    mixed, _ = whole.mix(NO_STATE, own, others, probe)
    trained, _ = Sgd().train(NO_STATE, mixed.start, task, 3, silent)
    assert trained.params.keys() == MODEL.start.params.keys()
    assert trained.buffers.keys() == MODEL.start.buffers.keys()
    assert all(
        bool(t.isfinite().all()) for t in (*trained.params.values(), *trained.buffers.values())
    )


def test_without_batchnorm_local_shares_the_whole_model() -> None:
    model = small_model()
    own = contribution("a", model.start.params)
    shared = WithBuffers(FedAvg(), "local").share(own.trained, MODEL.head)
    assert shared is not None
    assert list(shared.params) == list(model.start.params)
