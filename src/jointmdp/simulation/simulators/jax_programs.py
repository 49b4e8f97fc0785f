"""What the program of a step tells before it is taken: does all noise come from its key, and one key serve all actions?

A step is a program of JAX, so this is read from the program itself and not from samples. To follow the keys, every
value gets a number, the same for two operations that do the same to the same; keys with one number are one key, however
they were made. An action enters what is made from it, what one of several branches gives where the branches differ, and
what a loop hands on where the action decides how often it runs. The draws inside of such a loop do not hold it: round
by round they are the same for all actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util
from jax.extend.core import Literal
from jax.interpreters.partial_eval import dce_jaxpr

from jointmdp.ground.errors import ModelError
from jointmdp.simulation.simulators.generators import global_states

CALLBACKS = {"pure_callback", "io_callback"}
DRAWS = {"random_bits", "random_gamma", "threefry2x32", "rng_bit_generator", "rng_uniform"}
LOOPS = {"while", "scan"}
Branch = tuple[tuple[int, int], ...]  # choices, and the way taken at each


class StepProgram:
    """A step as JAX has traced it for states of the shapes and types of `state`, which may be those alone.

    A `ModelError` where tracing it moves a random generator of the host.
    """

    def __init__(self, step: Callable[..., Any], key: Any, state: Any, action: Any, name: str) -> None:
        self.state, self.name = state, name
        before = global_states()
        self.program, shapes = jax.make_jaxpr(step, return_shape=True)(key, state, action)
        self.types = shapes[1]  # of the states it leads to
        self._refuse_moved(before, "draws from {}")

    @property
    def calls_back(self) -> bool:
        """Whether it calls back into Python, where noise may come from anywhere."""
        return _has(self.program.jaxpr, CALLBACKS)

    def check_callbacks(self, run: Callable[[], Any]) -> None:
        """Where it calls back to the host it gives the same under one key, or something outside of JAX is random."""
        if not self.calls_back:
            return
        before = global_states()
        one, *others = (jax.tree.map(np.asarray, run()[:2]) for _ in range(3))
        self._refuse_moved(before, "draws from {} in a callback")
        pairs = [pair for other in others for pair in zip(*map(jax.tree.leaves, (one, other)), strict=True)]
        if any(not np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs):
            raise self._host_noise("gives other numbers under the same key: a callback draws them or counts,")

    def check_constants(self, other: StepProgram) -> None:
        """Two traces of one step hold the same numbers, or something outside of JAX makes them.

        They may differ in single precision: a literal may change its type with that of a state.
        """
        if not _are_alike(*([*_constants(each.program.jaxpr, each.program.consts)] for each in (self, other))):
            raise self._host_noise("uses a number that differs from call to call (a generator, a clock?)")

    def _refuse_moved(self, before: dict[str, bytes], deed: str) -> None:
        for module, where in global_states().items():
            if where != before[module]:
                raise self._host_noise(deed.format(module))

    def _host_noise(self, deed: str) -> ModelError:
        return ModelError(
            f"step of {self.name} {deed} outside of JAX: it runs inside jit, where that happens once and the number "
            "stays the same for ever; draw with jax.random from the key that step is given"
        )

    @property
    def _shown(self) -> list[bool]:
        """Which outputs are more than keys that it hands on."""
        is_key = [_may_be_key(leaf) for leaf in jax.tree.leaves(self.state)]
        return [True, *(not each for each in is_key), *[True] * (len(self.program.jaxpr.outvars) - 1 - len(is_key))]

    def frozen_noise(self) -> str:
        """Which noise does not come from the key that it is given; empty where all of it does.

        Keys that a step only hands on matter to nobody: only what reaches rewards, ends and other leaves counts.
        """
        used_program, used = dce_jaxpr(self.program.jaxpr, self._shown)
        if not _has(used_program, DRAWS):
            return ""
        is_raw = _has(used_program, {"random_wrap"})
        leaves = jax.tree_util.tree_flatten_with_path(self.state)[0]
        held = [
            jax.tree_util.keystr(path) or "the state itself"
            for (path, leaf), is_used in zip(leaves, used[1:], strict=False)
            if _may_be_key(leaf) and is_used and (is_raw or leaf.dtype != np.uint32)
        ]
        if held:
            part = "takes part of its noise" if used[0] else "ignores the key it is given: its noise comes"
            return (
                f"step of {self.name} {part} from a key kept in the state ({', '.join(held)}), so replications from "
                "one state see the same noise; draw from the given key, or put it there before each step"
            )
        if not used[0]:
            return (
                f"step of {self.name} ignores the key it is given and draws from a key that it makes itself, so "
                "replications see the same noise; draw from the given key"
            )
        return ""

    def key_faults(self) -> list[tuple[str, str]]:
        """What is wrong with its keys: the fault by name, and in words."""
        jaxpr, used = dce_jaxpr(self.program.jaxpr, self._shown)
        leaves = jax.tree.leaves(self.state)  # the action comes after the key and the state
        is_key = [True, *map(_may_be_key, leaves), *[False] * (len(used) - 1 - len(leaves))]
        inputs = [Value(("input", i), i > len(leaves), not is_key[i]) for i in range(len(used)) if used[i]]
        reader, found = _Reader(), []
        reader.read(jaxpr, _constant_values(self.program.consts), inputs, "", ())
        place = next((draw.place for draw in reader.draws if draw.key.has_action), "")
        if place:
            text = f"step of {self.name} draws from a key that depends on the action ({place})"
            found.append(("noise not shared", f"{text}, so the actions do not share it"))
        for one, other in itertools.combinations(reader.draws, 2):
            are_apart = any(a != b and a[0] == b[0] for a, b in zip(one.branch, other.branch, strict=False))
            if one.key.number == other.key.number and not are_apart and one.place != other.place:
                text = f"step of {self.name} draws twice from one key ({one.place}, {other.place})"
                found.append(("one stream for two sources", f"{text}: the two draws are no two sources"))
                break
        place = next((draw.place for draw in reader.draws if draw.is_repeated), "")
        if place:
            text = f"step of {self.name} draws from one key in every round of a loop ({place})"
            cause = "the same numbers come again and again; split the key for the rounds, or fold their number in"
            found.append(("one stream for two sources", f"{text}: {cause}"))
        place = next((draw.place for draw in reader.draws if draw.key.is_fixed), "")
        if place and used[0]:  # where it draws from no other `frozen_noise` says so
            text = f"step of {self.name} draws from a key that it makes itself ({place})"
            found.append(("frozen generator", f"{text}, so that replications from one state see the same numbers"))
        return found


def frozen_start(reset: Callable[[Any], Any], key: Any, name: str) -> str:
    """What is wrong with a start that draws, and not from the key that it is given; empty where nothing is."""
    before = global_states()
    program, again = (jax.make_jaxpr(lambda key: reset(key))(key) for _ in range(2))  # anew, and not from a cache
    moved = [module for module, where in global_states().items() if where != before[module]]
    if moved or not _are_alike(*([*_constants(each.jaxpr, each.consts)] for each in (program, again))):
        source = moved[0] if moved else "a generator or a clock"
        return f"reset of {name} takes numbers from {source} outside of JAX, once for all: draw with jax.random"
    if used_inputs(program)[0] or not _has(program.jaxpr, DRAWS):
        return ""
    return f"reset of {name} ignores the key it is given and draws from a key that it makes itself"


def _are_alike(mine: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether two traces hold the same numbers, as far as they have the same parts."""
    pairs = zip(mine, theirs, strict=True) if len(mine) == len(theirs) else ()
    for x, y in (map(np.asarray, pair) for pair in pairs):
        is_number = x.dtype.kind in "biuf" and y.dtype.kind in "biuf" and x.shape == y.shape
        if is_number and not np.allclose(x, y, rtol=1e-6, atol=0, equal_nan=True):
            return False
    return True


def used_inputs(program: Any) -> list[bool]:
    """Which inputs of a program its results depend on."""
    return list(dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars))[1])


def _may_be_key(leaf: Any) -> bool:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return True
    return bool(leaf.dtype == np.uint32 and leaf.shape[-1:] in ((2,), (4,)))


def _inner(operation: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """The programs inside of an operation, with their constants."""
    for value in operation.params.values():
        yield from _programs(value)


def _programs(value: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    for part in _as_parts(value):
        if hasattr(part, "jaxpr"):
            yield part.jaxpr, part.consts
        elif hasattr(part, "eqns"):
            yield part, ()


def _as_parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)


def _has(jaxpr: Any, names: set[str]) -> bool:
    return any(
        operation.primitive.name in names or any(_has(inner, names) for inner, _ in _inner(operation))
        for operation in jaxpr.eqns
    )


def _constants(jaxpr: Any, consts: Sequence[Any]) -> Iterator[Any]:
    """All numbers that stand in a program, in order; keys and other things without bytes are left out."""
    for value in consts:
        if getattr(value, "dtype", None) is not None and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
            yield value
    for operation in jaxpr.eqns:
        yield from (atom.val for atom in operation.invars if isinstance(atom, Literal))
    for operation in jaxpr.eqns:
        for inner, inner_consts in _inner(operation):
            yield from _constants(inner, inner_consts)
    yield from (atom.val for atom in jaxpr.outvars if isinstance(atom, Literal))


class Value(NamedTuple):
    """What is known of a value of a program."""

    number: Hashable
    has_action: bool  # whether the action enters it
    is_fixed: bool = False  # whether no key that the step is given enters it, and none that the state holds


class KeyDraw(NamedTuple):
    """A draw, the key that it takes, and where the user's code draws."""

    key: Value
    place: str
    branch: Branch  # the alternatives that it lies in
    is_repeated: bool = False  # whether each round of a loop draws from that key


class New(int):
    """The number of a value of which no more is known."""


def _constant_values(consts: Sequence[Any]) -> list[Value]:
    return [Value(("constant", id(value)), False, is_fixed=True) for value in consts]


class _Reader:
    """Reads a program once, and those inside of it, for the draws in it and their keys."""

    def __init__(self) -> None:
        self.draws: list[KeyDraw] = []
        self.new = map(New, itertools.count())

    def read(
        self, jaxpr: Any, constants: Sequence[Value], inputs: Sequence[Value], place: str, branch: Branch
    ) -> list[Value]:
        """The outputs, from what is known of the inputs."""
        known: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))

        def of(atom: Any) -> Value:
            if isinstance(atom, Literal):
                return Value(("literal", str(atom.val), str(atom.aval)), False, is_fixed=True)
            return known[atom]

        for operation in jaxpr.eqns:
            given = [of(atom) for atom in operation.invars]
            # Innermost names are those of JAX; the outermost is the line that the user wrote.
            here = place or str(source_info_util.summarize(operation.source_info))
            found = self._done(operation, given, here, branch)
            known.update(zip(operation.outvars, found, strict=True))
        return [of(atom) for atom in jaxpr.outvars]

    def _done(self, operation: Any, given: list[Value], place: str, branch: Branch) -> list[Value]:
        name, inner = operation.primitive.name, [(one, _constant_values(consts)) for one, consts in _inner(operation)]
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
        is_fixed = all(value.is_fixed for value in given)
        number: Hashable = next(self.new)
        if not inner:
            settings = [pair for pair in operation.params.items() if not any(map(callable, _as_parts(pair[1])))]
            number = name, str(settings), tuple(value.number for value in given)
        return [Value((number, i), has_action, is_fixed) for i in range(len(operation.outvars))]

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
        """Until no more of what a loop hands on holds the action or a key; its draws are those of the last round."""
        before, settings = len(self.draws), operation.params
        if operation.primitive.name == "while":
            count, fixed_count = settings["cond_nconsts"], settings["body_nconsts"]
            fixed, carry, rows = given[count : count + fixed_count], given[count + fixed_count :], list[Value]()
            jaxpr, consts = next(_programs(settings["body_jaxpr"]))
            consts = _constant_values(consts)
            is_asked = next(_programs(settings["cond_jaxpr"]))
        else:
            # A version of JAX that says otherwise which inputs are handed on: all of them may be.
            fixed = given[: settings.get("num_consts", 0)]
            carry = given[len(fixed) : len(fixed) + settings.get("num_carry", 0)]
            rows, (jaxpr, consts) = given[len(fixed) + len(carry) :], inner[0]
            is_asked, count = None, 0
        size, begun = len(carry), next(self.new)
        while True:  # each round adds a value that holds the action or a key, or is the last
            del self.draws[before:]
            state = [value._replace(number=next(self.new)) for value in [*carry, *rows]]
            out = self.read(jaxpr, consts, [*fixed, *state], place, branch)
            joined = [
                Value(value.number, value.has_action or after.has_action, value.is_fixed and after.is_fixed)
                for value, after in zip(carry, out[:size], strict=True)
            ]
            if joined == carry:
                break
            carry = joined
        if settings.get("length", 2) > 1:
            again = [draw._replace(is_repeated=not _changes(draw.key.number, begun)) for draw in self.draws[before:]]
            self.draws[before:] = again
        is_counted = False  # whether the action decides how often it runs
        if is_asked is not None:
            within, (asked, held) = len(self.draws), is_asked
            is_counted = self.read(asked, _constant_values(held), [*given[:count], *state], place, branch)[0].has_action
            del self.draws[within:]
        is_changed = [was.number != after.number for was, after in zip(state, out, strict=False)]
        return [
            Value(next(self.new), value.has_action or (is_counted and i < size and is_changed[i]), value.is_fixed)
            for i, value in enumerate(out)
        ]


def _changes(number: Hashable, begun: int) -> bool:
    """Whether a value is made of one that came up since."""
    if isinstance(number, tuple):
        return any(_changes(part, begun) for part in number)
    return isinstance(number, New) and number >= begun


def _either(chosen_by: Value, values: Sequence[Value]) -> Value:
    """What one of several branches gives: where they agree, whichever it is."""
    numbers = {value.number for value in values}
    has_action = any(value.has_action for value in values) or (chosen_by.has_action and len(numbers) > 1)
    first = values[0].number if len(numbers) == 1 else ("either", chosen_by.number, tuple(v.number for v in values))
    return Value(first, has_action)
