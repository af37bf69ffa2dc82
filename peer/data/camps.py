"""Camps: groups of peers that name the classes differently (concept shift), declared to all."""

import numpy as np

from protocol.errors import ConfigError

__all__ = ["camp_of", "namings"]


def namings(num_classes: int, num_camps: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Draw the label that each camp gives to each class: camp k names class i `namings[k][i]`.

    Camp 0 keeps the true labels. The classes stand in a random circle, and camp k gives each the
    label of the class k places on, so that no two camps agree on any class.

    Raises:
        ConfigError: more camps than classes cannot all disagree.
    """
    if not 1 <= num_camps <= num_classes:
        raise ConfigError(
            f"camps is {num_camps}, must be from 1 to the number of classes, {num_classes}"
        )
    circle = rng.permutation(num_classes)
    drawn = []
    for camp in range(num_camps):
        naming = np.empty(num_classes, np.int64)
        naming[circle] = np.roll(circle, -camp)
        drawn.append(tuple(naming.tolist()))
    return drawn


def camp_of(peer: int, *, num_domains: int, num_camps: int) -> int:
    """Say which camp a peer falls into, when peer p has domain p mod D.

    The peers of one domain take the camps in turn, each domain starting one further on: a domain
    with K peers has one in every camp, and so has a row of K domains.
    """
    return (peer // num_domains + peer % num_domains) % num_camps
