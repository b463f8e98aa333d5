"""How the members of a consumer group share its partitions: a pure function, the same for all.

Nobody gives out partitions: each member works out the fair share of all, lets go of what is not its
own, and claims what is and is free. What a member has stays with it as far as that is fair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Place = tuple[int, int]  # topic id, partition


def fair_shares(
    places: Iterable[Place], members: Mapping[str, frozenset[int]], held: Mapping[Place, str]
) -> dict[Place, str]:
    """Which member should have each partition, if any consumes its topic.

    `members` says which topics each consumes, `held` who has what now.
    """
    shares: dict[str, list[Place]] = {member: [] for member in sorted(members)}
    free = []
    for place in sorted(places):
        holder = held.get(place)
        if holder in shares and place[0] in members[holder]:
            shares[holder].append(place)
        else:
            free.append(place)
    for place in free:
        able = [m for m in shares if place[0] in members[m]]
        if able:
            shares[min(able, key=lambda m: len(shares[m]))].append(place)
    while (move := _unfair(shares, members)) is not None:
        place, giver, taker = move
        shares[giver].remove(place)
        shares[taker].append(place)
    return {place: member for member, its in shares.items() for place in its}


def _unfair(
    shares: Mapping[str, list[Place]], members: Mapping[str, frozenset[int]]
) -> tuple[Place, str, str] | None:
    """A partition whose holder has at least two more than another who could have it."""
    for giver in sorted(shares, key=lambda m: -len(shares[m])):
        for place in reversed(shares[giver]):
            able = [m for m in shares if place[0] in members[m]]
            taker = min(able, key=lambda m: len(shares[m]))
            if len(shares[giver]) >= len(shares[taker]) + 2:
                return place, giver, taker
    return None
