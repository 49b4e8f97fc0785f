"""A user's functions as JAX traces them: one key for those that do the same, mistakes in plain words, like states.

Functions that do the same share a compiled program: a lambda written anew in a loop compiles once. Two functions are
the same if their code is and if all that the code can read is: closures, defaults, and the globals it names. Values are
taken as they are now, so a variable that has changed since makes another key. Where something is read that could change
unseen (an object with attributes), the key is the function itself.
"""

import functools
import inspect
import itertools
import linecache
import traceback
import types
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jointmdp.ground.errors import ModelError
from jointmdp.simulation.simulators.fingerprints import named_in
from jointmdp.simulation.simulators.noise import digest

LIBRARIES = {"jax", "numpy", "math", "functools", "operator", "itertools", "jointmdp", "builtins", "typing"}
PLAIN = (int, str, bytes, type(None), type(Ellipsis), np.dtype)
LARGEST = 2**24  # bytes of a NumPy array that are compared
LARGE = 2**16  # bytes of an array of JAX: these never change, and large ones are seldom made twice


class _OpaqueError(Exception):
    """Something that could change unseen."""


def function_key(function: Callable[..., Any]) -> Hashable:
    """Equal for functions that do the same."""
    try:
        return _of(function, ())
    except _OpaqueError:
        # A method of a callable can be hashed whatever the callable is, and is equal if the objects are one.
        return function.__call__  # type: ignore[operator]


def value_key(value: Any) -> Hashable:
    """Equal for values that are the same, functions included; a value that could change unseen is itself."""
    try:
        return _of(value, ())
    except _OpaqueError:
        return _Itself(value)


class _Itself:
    """An object as its own key; it is kept, so that no other can take its place in memory."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _of(value: Any, above: tuple[Any, ...]) -> Hashable:
    """The key of a value; `above` are the functions that it was met in."""
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, float | complex | np.generic):
        return type(value), repr(value)  # told apart: 0.0 and −0.0; and NaN is itself
    if isinstance(value, types.FunctionType) and value in above:
        return "above", above.index(value)
    if isinstance(value, functools.partial):
        return "partial", _of((value.func, value.args, value.keywords), above)
    if isinstance(value, tuple | list | set | frozenset):
        return type(value), tuple(_of(each, above) for each in value)
    if isinstance(value, dict):
        return type(value), tuple((_of(key, above), _of(each, above)) for key, each in value.items())
    if isinstance(value, np.ndarray | jax.Array):
        is_ours = isinstance(value, np.ndarray)
        if is_ours and (value.dtype == object or value.nbytes > LARGEST):
            raise _OpaqueError
        if not is_ours and (jnp.issubdtype(value.dtype, jax.dtypes.extended) or value.nbytes > LARGE):
            return _Itself(value)
        return type(value), str(value.dtype), value.shape, digest(np.ascontiguousarray(value).tobytes())
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    is_fixed = isinstance(value, types.ModuleType | types.BuiltinFunctionType | type) or callable(value)
    if is_fixed and module.partition(".")[0] in LIBRARIES:
        return _Itself(value)
    if not isinstance(value, types.FunctionType):
        raise _OpaqueError
    try:
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
    except ValueError:  # a name that has no value yet
        raise _OpaqueError from None
    spaces = value.__globals__
    read = {name: spaces[name] for name in sorted(set(named_in(value.__code__))) if name in spaces}
    parts = (cells, value.__defaults__, value.__kwdefaults__, value.__dict__, read)
    return value.__code__, _of(parts, (*above, value))


WORDS = {
    "key": {"key", "k", "rng", "rng_key", "prng", "prng_key", "random_key", "subkey"},
    "state": {"state", "s", "env_state"},
    "action": {"action", "a", "act"},
    "observation": {"observation", "obs", "o"},
}
HOST_CALLS = (  # what asked for a value that is not there yet, and what to use instead
    (
        jax.errors.TracerBoolConversionError,
        "a Python `if`, `while`, `and`, `or` or bool()",
        "jnp.where or lax.cond",
    ),
    (jax.errors.TracerIntegerConversionError, "range() or the index of a list", "lax.fori_loop or jnp.take"),
    (jax.errors.TracerArrayConversionError, "NumPy", "jax.numpy"),
    (jax.errors.ConcretizationTypeError, "float(), int() or .item()", "jax.numpy"),
)


@dataclass(frozen=True)
class Guarded:
    """A user's function: whatever it raises ends in one `ModelError` with its name, the line and the likely cause."""

    function: Callable[..., Any]
    role: str
    """What it is, for messages: ``step of game``."""
    parts: tuple[str, ...]
    """What it is given."""
    guess: Callable[[Callable[..., Any], tuple[Any, ...]], str] = lambda function, given: ""
    """The likely mistake, from the function and the arguments that it failed with; empty where none comes to mind."""

    @property
    def call(self) -> str:
        """How it is called."""
        return f"{self.role.split(' ')[0]}({', '.join(self.parts)})"

    def __call__(self, *given: Any) -> Any:
        try:
            return self.function(*given)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(self._told(error, given)) from None

    def check_order(self) -> None:
        """Refuse parameters whose names ask for another order: such a function may run all the same."""
        names = _parameter_names(self.function)
        meant = [next((part for part, words in WORDS.items() if name.lower() in words), "") for name in names]
        moved = [part for part, own in zip(meant, self.parts, strict=False) if part in self.parts and part != own]
        if len(names) == len(self.parts) and len(moved) >= 2:
            given, wanted = ", ".join(self.parts), ", ".join(part or "…" for part in meant)
            raise ModelError(
                f"{self.role} has the parameters ({', '.join(names)}), but is called as {self.call}; give "
                f"lambda {given}: f({wanted})"
            )

    def _told(self, error: Exception, given: tuple[Any, ...]) -> str:
        try:
            inspect.signature(self.function).bind(*given)
        except TypeError:
            return f"{self.role} takes ({', '.join(_parameter_names(self.function))}), but is called as {self.call}"
        except ValueError:  # no signature
            pass
        what = f"{self.role} fails{_line(error)}"
        for kind, asker, instead in HOST_CALLS:
            if isinstance(error, kind):
                return f"{what}: {asker} asks for a value, and inside jit there is none yet; use {instead}"
        if isinstance(error, jax.errors.UnexpectedTracerError):
            return f"{what}: it keeps a value from inside jit for later; all that a function keeps must be in the state"
        text = next(iter(str(error).splitlines()), "").rstrip(".")
        hint = self.guess(self.function, given)
        return f"{what} ({type(error).__name__}: {text}){'; ' * bool(hint)}{hint}"


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    try:
        return [str(name) for name in inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return []


def _line(error: Exception) -> str:
    """The line of the user's that an error comes from."""
    ours = (jax.__file__.rpartition("/")[0], __file__.rpartition("/simulators/")[0], np.__file__.rpartition("/")[0])
    found = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    if not found:
        return ""
    frame = found[-1]
    text = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f" in line {frame.lineno} of {frame.filename.rpartition('/')[2]}{f', `{text}`' if text else ''}"


def step_guess(function: Callable[..., Any], given: tuple[Any, ...]) -> str:
    """Whether a step works with its arguments in another order, or with a part of the state."""
    names = ("key", "state", "action")
    key, state, action = (jax.tree.map(_shape, part) for part in given)
    states = [("", state)]
    if isinstance(state, tuple) and len(state) == 2:
        states += [("second", state[1]), ("first", state[0])]
    for (which, part), order in itertools.product(states, itertools.permutations(range(3))):
        values = (key, part, action)
        try:
            found = jax.eval_shape(function, *(values[i] for i in order))
            leads_on = len(found) in (2, 3) and _same_shape(found[1], part)
        except Exception:  # whatever a function does to arguments that it was not written for
            continue
        call = f"({', '.join(names[i] for i in order)})"
        if leads_on and not which:
            return f"it works as step{call}; write lambda key, state, action: step{call}"
        if leads_on:
            also = "" if order == (0, 1, 2) else f", as step{call}"
            return (
                f"it works with the {which} part of what reset returns{also}: did reset return an observation with the "
                f"state? give reset=lambda key: reset(key)[{int(which == 'second')}], and observe="
            )
    return ""


def policy_guess(function: Callable[..., Any], given: tuple[Any, ...]) -> str:
    """Whether a policy works with its arguments in the other order."""
    if len(given) != 2:
        return ""
    try:
        jax.eval_shape(function, *(jax.tree.map(_shape, part) for part in reversed(given)))
    except Exception:  # whatever it raises: the other order is no better
        return "its second argument is a JAX key here, to be used with jax.random"
    return "it works as policy(key, observation); write lambda observation, key: policy(key, observation)"


def _same_shape(one: Any, other: Any) -> bool:
    return str(jax.tree.structure(one)) == str(jax.tree.structure(other)) and all(
        jnp.shape(a) == jnp.shape(b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def _shape(leaf: Any) -> Any:
    return jax.eval_shape(lambda: jnp.asarray(leaf))


def as_arrays(state: Any, what: str) -> Any:
    """A pytree with arrays for leaves; `what` it is, for messages."""

    def convert(path: Any, leaf: Any) -> Any:
        try:
            return jnp.asarray(leaf)
        except Exception as error:
            if isinstance(error, HOST_CALLS[-1][0]):
                raise
            where = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise ModelError(
                f"{what} holds a {type(leaf).__name__}{where}, which is no array and no pytree; a state is made of "
                "arrays in tuples, dicts or registered classes (jax.tree_util.register_dataclass, flax.struct); keep "
                "what never changes outside of it"
            ) from None

    found = jax.tree_util.tree_map_with_path(convert, state)
    if not jax.tree.leaves(found):
        raise ModelError(f"{what} holds no array ({state!r}); did the function forget to return it?")
    return found


def joined_types(first: Any, second: Any, name: str) -> Any:
    """The types that hold both states, leaf by leaf."""
    before, after = (str(jax.tree.structure(state)) for state in (first, second))
    if before != after:
        is_pair = isinstance(first, tuple) and any(str(jax.tree.structure(part)) == after for part in first)
        hint = "; did reset return an observation with the state? it must return the state alone" if is_pair else ""
        raise ModelError(f"a step of {name} changes the structure of the state from {before} to {after}{hint}")

    def join(path: Any, one: Any, other: Any) -> Any:
        if one.shape != other.shape:
            where = jax.tree_util.keystr(path) or "the state"
            raise ModelError(f"a step of {name} changes the shape of {where} from {one.shape} to {other.shape}")
        # Keys inside of a state have a type that cannot be promoted, and need not be.
        dtype = one.dtype if one.dtype == other.dtype else jnp.promote_types(one.dtype, other.dtype)
        return jax.ShapeDtypeStruct(one.shape, dtype)  # type: ignore[no-untyped-call]

    return jax.tree_util.tree_map_with_path(join, first, second)


def check_like(state: Any, types: Any, observation: Callable[[], Any], name: str) -> None:
    """A state of the user's has the structure and shapes of all states, or it is said what it may be instead."""
    try:
        is_like = _same_shape(state, types)
    except TypeError:
        is_like = False
    if is_like:
        return
    seen = observation()
    if not _same_shape(seen, types) and _same_shape(state, seen):
        raise ModelError(f"this is an observation of {name}, not a state; give a state of reset(), walk() or a query")
    shown = " and ".join(str(jax.tree.map(jnp.shape, each)) for each in (state, types))
    raise ModelError(f"a state of {name} has another structure than those it begins in: shapes {shown}")
