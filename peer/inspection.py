"""Admission on the trainer's side: looks into snapshots that the node has pulled and verified."""

from collections.abc import Callable, Mapping

from peer.admission import first_unfinite, norm_fault
from peer.admit import AdmitOptions
from peer.exchange import read_contribution, sections_of
from peer.work import Inspect, Inspected
from protocol.codecs import Coder
from protocol.errors import LayoutError
from protocol.ids import PeerId
from protocol.params import Params, norm

__all__ = ["Inspector"]


class Inspector:
    """Remembers the norms of what was admitted last, for comparison."""

    def __init__(
        self,
        admit: AdmitOptions,
        own: Callable[[], Params],
        norms: Mapping[PeerId, float] | None = None,
        *,
        coder: Coder | None = None,
    ) -> None:
        """Prepare.

        Args:
            admit: which checks are on.
            own: gives the own point, with which neighbours are compared while they are few.
            norms: those that an earlier process remembered.
            coder: of the run; None where nothing is coded.
        """
        self._admit = admit
        self._own = own
        self._coder = coder
        self._norms: dict[PeerId, float] = dict(norms or {})

    @property
    def norms(self) -> Mapping[PeerId, float]:
        """Of what was admitted last, by sender."""
        return dict(self._norms)

    def inspect(self, command: Inspect, *, updates: bool = False) -> Inspected:
        """Look at a neighbour's parameters before they may be mixed.

        Args:
            command: which.
            updates: they are start minus trained, of which no norm is absurd by itself.
        """
        neighbour = PeerId(command.neighbour)
        try:
            fault = self._fault(neighbour, command, updates=updates)
        except (LayoutError, OSError) as error:
            fault = str(error)
        return Inspected(command.neighbour, command.snapshot.digest, fault)

    def _fault(self, neighbour: PeerId, command: Inspect, *, updates: bool) -> str:
        trained = read_contribution(command.snapshot, coder=self._coder).trained
        own = self._own()
        if odd := trained.params.keys() - own.keys():
            return f"a tensor {min(odd)} that the model does not have"
        for name, tensor in trained.params.items():
            if tensor.shape != own[name].shape:
                return f"{name} of shape {tuple(tensor.shape)}, not {tuple(own[name].shape)}"
        for section, tensors in sections_of(trained).items():
            if self._admit.finite and (bad := first_unfinite(tensors)) is not None:
                return f"{section}/{bad} holds a NaN or an infinity"
        size = norm(trained.params)
        if self._admit.norm and not updates and trained.params:
            others = [n for name, n in sorted(self._norms.items()) if name != neighbour]
            mine = norm({name: own[name] for name in trained.params})
            if fault := norm_fault(size, mine, others):
                return fault
        self._norms[neighbour] = size
        return ""
