"""Moves that come before two branches are an ordinary pair, as where the past of one of them is known."""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from jointmdp.arrays import Floats, Ints


class OpeningMoves(NamedTuple):
    """Moves of nodes 0, 1, …; node 0 is where the gap begins, and all lead to later nodes or to pairs of states."""

    parent: Ints
    weight: Floats
    gain: Floats
    loss: Floats
    node: Ints  # that a move leads to; negative where it leads to a pair, or where both branches are one
    first: Ints  # states of the pair; negative where both are one
    second: Ints
    num_nodes: int
    num_terms: int  # sums and products that weights went through


class Opening:
    """A gap that begins with moves of its own; they are made when they are asked for."""

    def __init__(self, make: Callable[[], OpeningMoves]) -> None:
        self._make = make

    @cached_property
    def moves(self) -> OpeningMoves:
        return self._make()
