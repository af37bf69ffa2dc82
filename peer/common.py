"""The trainer's side of one common model: the relay's, or a copy on every peer."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from torch import Tensor

from peer.aggregators.evidence import lacks
from peer.exchange import digest_of, read_contribution
from peer.mixers.replicated import Replicated, agreement, memory_of, pack_state, unpack_state
from peer.options.entry import Need
from peer.work import Adopt, Mix
from protocol.errors import LayoutError
from protocol.ids import PeerId
from protocol.params import Params, State
from protocol.round import Contribution, Mixed, Start

__all__ = ["CommonModel"]


class CommonModel:
    """A peer's copy of the start that all share, and of the aggregator's memory."""

    def __init__(
        self,
        replicated: Replicated,
        start: Start,
        needs: AbstractSet[Need],
        *,
        at_relay: bool = False,
    ) -> None:
        """Begin at the initial model.

        Args:
            replicated: the aggregator, as every holder of a copy runs it.
            start: the initial model.
            needs: what the aggregator must be given beside parameters.
            at_relay: the only memory that counts is this one; peers are compared by start alone.
        """
        self._replicated = replicated
        self._needs = needs
        self._at_relay = at_relay
        self._hold(replicated.init(start))

    def restore(self, state: State) -> None:
        """Go on from the state that an earlier process held."""
        self._hold(state)

    @property
    def state(self) -> State:
        return self._state

    @property
    def memory(self) -> bytes:
        """Digest of the aggregator's memory, which contributions carry to be compared."""
        return self._memory

    def _hold(self, state: State) -> None:
        """Keep a state that no receive buffer reaches; digested once, compared often."""
        self._state: State = {
            key: {name: tensor.detach().clone() for name, tensor in params.items()}
            for key, params in state.items()
        }
        self._base = digest_of(self._state["params"])
        self._memory = digest_of(memory_of(self._state))

    def mix(
        self, own: Contribution | None, others: Sequence[Contribution], command: Mix
    ) -> Mixed | PeerId:
        """The next common start; or the peer whose state is to be adopted first.

        Args:
            own: the own result; None before the first one.
            others: what was collected.
            command: roster, relay, and whether a state may be adopted.
        """
        if command.relay:
            return self._from_relay(own, others, PeerId(command.relay))
        everyone = sorted([*others, *([own] if own is not None else [])], key=lambda c: c.sender)
        if not everyone:
            return Mixed(self.start)  # round 1
        # What is older was trained from an older start: it may not outvote those who went on.
        collected = command.round_no if self._at_relay else command.round_no - 1
        agreed = agreement([c for c in everyone if c.round_no == collected] or everyone)
        if command.may_adopt and not self._fits(agreed[0]):
            return agreed[0].sender
        reasons = {c.sender: self._why_not(c) for c in everyone}
        usable = [c for c in everyone if not reasons[c.sender]]
        if not usable:
            return self._local(own)
        roster = [PeerId(name) for name in command.roster]
        mixed, state = self._replicated.combine(self._state, usable, roster)
        self._hold(state)
        return replace(mixed, unused={name: why for name, why in reasons.items() if why})

    def _why_not(self, contribution: Contribution) -> str:
        """Why it is not aggregated; empty if it is."""
        if not self._fits(contribution):
            return "trained from another start"
        return lacks(self._needs, self.start, contribution)

    @property
    def start(self) -> Start:
        return unpack_state(self._state)[0]

    def _fits(self, contribution: Contribution) -> bool:
        """Was it trained from the start that is held here, with the same memory?"""
        if contribution.base != self._base:
            return False
        return self._at_relay or contribution.memory == self._memory

    def _local(self, own: Contribution | None) -> Mixed:
        """Go on from the own result: nothing that is here fits together.

        It is then what this copy holds, so that others can adopt it if they have lost theirs too.
        """
        if own is None:
            return Mixed(self.start, notes={"local_round": 1.0})
        start = Start(own.trained.params, own.trained.buffers)
        _, memory = unpack_state(self._state)
        self._hold(pack_state(start, memory))
        return Mixed(start, client_weight={own.sender: 1.0}, notes={"local_round": 1.0})

    def _from_relay(
        self, own: Contribution | None, others: Sequence[Contribution], relay: PeerId
    ) -> Mixed:
        """Start from what the relay sent; without it, from the own result: a local round."""
        sent = next((c.trained for c in others if c.sender == relay), None)
        if sent is not None:
            start = Start(sent.params, sent.buffers, sent.extras)
            self._hold(self._replicated.init(start))
            return Mixed(start, client_weight={relay: 1.0})
        return Mixed(self.start) if own is None else self._local(own)

    def adopt(self, command: Adopt) -> str:
        """Take over what another peer holds; why not, where it does not fit."""
        try:
            held = read_contribution(command.snapshot)
        except (LayoutError, OSError) as error:
            return str(error)
        trained = held.trained
        if digest_of(trained.params) != held.base:
            return "its start is not the one that its manifest names"
        if trained.params.keys() != self._state["params"].keys():
            return "its start has other tensors than the model"
        extras, memory = _unflattened(trained.extras)
        start = Start(trained.params, trained.buffers, extras)
        state = pack_state(start, memory)
        if digest_of(memory_of(state)) != held.memory:
            return "its memory is not the one that its manifest names"
        self._hold(state)
        return ""


def _unflattened(flat: Params) -> tuple[Params, State]:
    """Extras of the start, and the aggregator's memory, of a state part's names."""
    extras: dict[str, Tensor] = {}
    memory: dict[str, dict[str, Tensor]] = {}
    for path, tensor in flat.items():
        key, _, name = path.rpartition("/")
        if key == "start":
            extras[name] = tensor
        elif key.startswith("memory/"):
            memory.setdefault(key.removeprefix("memory/"), {})[name] = tensor
    return extras, memory
