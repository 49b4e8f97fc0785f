"""Which keys a traced step draws from: do they depend on the action, and does one key serve two draws?

A step is a program of JAX, so this is read from the program itself and not from samples. Every value gets a number,
the same for two operations that do the same to the same; keys with one number are one key, however they were made. An
action enters what is made from it, what one of several branches gives where the branches differ, and what a loop hands
on where the action decides how often it runs. The draws inside of such a loop do not hold it: round by round they are
the same for all actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend import source_info_util
from jax.extend.core import Literal
from jax.interpreters.partial_eval import dce_jaxpr

DRAWS = {"random_bits", "random_gamma", "threefry2x32", "rng_bit_generator", "rng_uniform"}
LOOPS = {"while", "scan"}
Branch = tuple[tuple[int, int], ...]  # choices, and the way taken at each


class Value(NamedTuple):
    """What is known of a value of a program."""

    number: Hashable
    has_action: bool  # whether the action enters it


class KeyDraw(NamedTuple):
    """A draw, the key that it takes, and where the user's code draws."""

    key: Value
    place: str
    branch: Branch  # the alternatives that it lies in


def key_draws(program: Any, is_action: Sequence[bool], is_shown: Sequence[bool]) -> list[KeyDraw]:
    """The draws of a closed jaxpr that reach the outputs shown; `is_action` says which inputs are the action's."""
    jaxpr, used = dce_jaxpr(program.jaxpr, list(is_shown))
    inputs = [Value(("input", i), is_action[i]) for i in range(len(used)) if used[i]]
    reader = _Reader()
    constants = [Value(("constant", id(value)), False) for value in program.consts]
    reader.read(jaxpr, constants, inputs, "", ())
    return reader.draws


class _Reader:
    """Reads a program once, and those inside of it."""

    def __init__(self) -> None:
        self.draws: list[KeyDraw] = []
        self.new = itertools.count()

    def read(
        self, jaxpr: Any, constants: Sequence[Value], inputs: Sequence[Value], place: str, branch: Branch
    ) -> list[Value]:
        """The outputs, from what is known of the inputs."""
        known: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))

        def of(atom: Any) -> Value:
            if isinstance(atom, Literal):
                return Value(("literal", str(atom.val), str(atom.aval)), False)
            return known[atom]

        for operation in jaxpr.eqns:
            given = [of(atom) for atom in operation.invars]
            # Innermost names are those of JAX; the outermost is the line that the user wrote.
            here = place or str(source_info_util.summarize(operation.source_info))
            found = self._done(operation, given, here, branch)
            known.update(zip(operation.outvars, found, strict=True))
        return [of(atom) for atom in jaxpr.outvars]

    def _done(self, operation: Any, given: list[Value], place: str, branch: Branch) -> list[Value]:
        name, inner = operation.primitive.name, list(_programs(operation))
        if name in DRAWS:
            self.draws.append(KeyDraw(given[0], place, branch))
        if name == "cond":
            ways, before = [], len(self.draws)
            for i, (jaxpr, consts) in enumerate(inner):
                ways.append(self.read(jaxpr, consts, given[1:], place, (*branch, (id(operation), i))))
            if given[0].has_action:
                self._compare_branches(before, len(branch))
            return [_either(given[0], values) for values in zip(*ways, strict=True)]
        if name in LOOPS:
            return self._loop(operation, given, inner, place, branch)
        if len(inner) == 1 and len(inner[0][0].invars) == len(given):  # jit, remat, a custom derivative
            found = self.read(inner[0][0], inner[0][1], given, place, branch)
            if len(found) == len(operation.outvars):
                return found
        has_action = any(value.has_action for value in given)
        settings = str({key: value for key, value in operation.params.items() if not _holds_program(value)})
        number = (name, settings, tuple(value.number for value in given)) if not inner else next(self.new)
        return [Value((number, i), has_action) for i in range(len(operation.outvars))]

    def _compare_branches(self, before: int, depth: int) -> None:
        """Branches that the action chooses share their noise where they draw from keys that they have in common."""
        drawn: dict[int, set[Hashable]] = {}
        for draw in self.draws[before:]:
            drawn.setdefault(draw.branch[depth][1], set()).add(draw.key.number)
        if len(drawn) > 1 and not set.intersection(*drawn.values()):
            self.draws[before:] = [
                draw._replace(key=draw.key._replace(has_action=True)) for draw in self.draws[before:]
            ]

    def _loop(self, operation: Any, given: list[Value], inner: list[Any], place: str, branch: Branch) -> list[Value]:
        """Until no more of what a loop hands on holds the action; its draws are those of the last round."""
        before, settings = len(self.draws), operation.params
        if operation.primitive.name == "while":
            count, fixed_count = settings["cond_nconsts"], settings["body_nconsts"]
            fixed, carry, rows = given[count : count + fixed_count], given[count + fixed_count :], list[Value]()
            jaxpr, consts = next(_programs_in(settings["body_jaxpr"]))
            is_asked = next(_programs_in(settings["cond_jaxpr"]))
        else:
            # A version of JAX that says otherwise which inputs are handed on: all of them may be.
            fixed = given[: settings.get("num_consts", 0)]
            carry = given[len(fixed) : len(fixed) + settings.get("num_carry", 0)]
            rows, (jaxpr, consts) = given[len(fixed) + len(carry) :], inner[0]
            is_asked, count = None, 0
        size = len(carry)
        while True:  # each round adds a value that holds the action, or is the last
            del self.draws[before:]
            state = [Value(next(self.new), value.has_action) for value in [*carry, *rows]]
            out = self.read(jaxpr, consts, [*fixed, *state], place, branch)
            joined = [
                value._replace(has_action=value.has_action or after.has_action)
                for value, after in zip(carry, out[:size], strict=True)
            ]
            if joined == carry:
                break
            carry = joined
        is_counted = False  # whether the action decides how often it runs
        if is_asked is not None:
            within = len(self.draws)
            is_counted = self.read(*is_asked, [*given[:count], *state], place, branch)[0].has_action
            del self.draws[within:]
        is_changed = [was.number != after.number for was, after in zip(state, out, strict=False)]
        return [
            Value(next(self.new), value.has_action or (is_counted and i < size and is_changed[i]))
            for i, value in enumerate(out)
        ]


def _either(chosen_by: Value, values: Sequence[Value]) -> Value:
    """What one of several branches gives: where they agree, whichever it is."""
    numbers = {value.number for value in values}
    has_action = any(value.has_action for value in values) or (chosen_by.has_action and len(numbers) > 1)
    first = values[0].number if len(numbers) == 1 else ("either", chosen_by.number, tuple(v.number for v in values))
    return Value(first, has_action)


def _programs(operation: Any) -> Iterator[tuple[Any, Sequence[Value]]]:
    """The programs inside of an operation, with what is known of their constants."""
    for value in operation.params.values():
        yield from _programs_in(value)


def _programs_in(value: Any) -> Iterator[tuple[Any, Sequence[Value]]]:
    for part in value if isinstance(value, tuple | list) else (value,):
        if hasattr(part, "jaxpr"):
            yield part.jaxpr, [Value(("constant", id(each)), False) for each in part.consts]
        elif hasattr(part, "eqns"):
            yield part, []


def _holds_program(value: Any) -> bool:
    parts = value if isinstance(value, tuple | list) else (value,)
    return any(hasattr(part, "jaxpr") or hasattr(part, "eqns") or callable(part) for part in parts)


def _are_apart(one: KeyDraw, other: KeyDraw) -> bool:
    """Whether two draws lie in different branches of one choice, so that only one of them is made."""
    return any(a != b and a[0] == b[0] for a, b in zip(one.branch, other.branch, strict=False))


def drawn_by_action(draws: Sequence[KeyDraw]) -> str:
    """Where a key depends on the action; empty where none does."""
    return next((draw.place for draw in draws if draw.key.has_action), "")


def drawn_twice(draws: Sequence[KeyDraw]) -> tuple[str, str] | None:
    """Two places that draw from one key."""
    for one, other in itertools.combinations(draws, 2):
        if one.key.number == other.key.number and not _are_apart(one, other) and one.place != other.place:
            return one.place, other.place
    return None


def key_faults(program: Any, num_states: int, is_shown: Sequence[bool], name: str) -> list[tuple[str, str]]:
    """What is wrong with the keys of a step (key, state, action): the fault by name, and in words."""
    num_inputs = len(program.jaxpr.invars)
    draws = key_draws(program, [i > num_states for i in range(num_inputs)], is_shown)
    found = []
    if place := drawn_by_action(draws):
        text = f"step of {name} draws from a key that depends on the action ({place}), so the actions do not share it"
        found.append(("noise not shared", text))
    if places := drawn_twice(draws):
        text = f"step of {name} draws twice from one key ({places[0]}, {places[1]}): the two draws are no two sources"
        found.append(("one stream for two sources", text))
    return found
