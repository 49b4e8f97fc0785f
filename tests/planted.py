"""Planted faults of common random numbers, as data: what is broken, its healthy twin, and a plain proof of both.

The proof uses no line of the library. A thing is run by itself, `run(decision, seed)`, and five plain measures are
taken: does a run give the same again, in another order; do other seeds give other results; how much does the gap of two
decisions vary under one seed; how much does one result vary; does another process agree. A fault is one that its own
measure shows, beside its twin. A twin gives the same again, and the results of its decisions go together.

    python tests/planted.py                     a table by family: what `audit` and `compare` make of the faults
    python tests/planted.py --rows              every row, with what was found instead
    python tests/planted.py --module PATH       the faults of another file
"""

from __future__ import annotations

import argparse
import copy
import importlib
import inspect
import itertools
import random
import subprocess
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

Run = Callable[[Any, int], float]
Shows = Literal["again", "coincides", "neighbours", "gap", "law", "process"]

# A gap or a result whose variance is this many times its twin's is another one: with 300 pairs of runs each, equal
# variances of normal numbers have a ratio above 1.5 in one of 2,000 tries.
RATIO = 1.5


@dataclass(frozen=True)
class Planted:
    """One fault with its healthy twin."""

    name: str
    family: str
    build: Callable[[bool], Any]
    """``build(True)`` makes the broken thing anew, ``build(False)`` its twin: a function, or what has `source` and
    `run`."""
    names: frozenset[str]
    """What a person who read the source would accept as the fault's name."""
    cause: str
    shows: Shows
    """The measure of `evidence` in which the fault differs from its twin."""
    decisions: tuple[Any, ...] = ()
    """What to hand to a run function."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of `audit`, beside the few states and samples that all get."""
    compared: Mapping[str, Any] = field(default_factory=dict)
    """Of `compare`."""
    is_compared_in_a_state: bool = False
    """Where a start of its own for each replication hides the fault, and makes the answer right."""
    runs: int = 300
    """Pairs of runs for the evidence; fewer where a run is slow."""
    harmless: bool = False
    """Whether `compare` may be silent: its own seeds avoid what is broken, and its answer is right."""

    def asked(self) -> list[Any]:
        """The decisions anew, since a broken run may change them."""
        return copy.deepcopy(list(self.decisions or self.build(False).actions))


def registry() -> tuple[list[Planted], Callable[..., Any]]:
    """An empty list, and a decorator that adds to it a function ``build(is_broken)``."""
    rows: list[Planted] = []

    def planted(name: str, family: str, names: str, **rest: Any) -> Any:
        def add(build: Callable[[bool], Any]) -> Callable[[bool], Any]:
            cause = inspect.cleandoc(build.__doc__ or "")
            rows.append(Planted(name, family, build, frozenset(names.split(", ")), cause, **rest))
            return build

        return add

    return rows, planted


# -- how things are run without the library ----------------------------------------------------------------------


class PlainNoise:
    """What a run is given as `noise`: a generator for each name."""

    def __init__(self, *parts: int) -> None:
        self.parts, self.streams = parts, {}

    def __getitem__(self, name: Any) -> np.random.Generator:
        key = zlib.crc32(repr(name).encode())
        return self.streams.setdefault(key, np.random.default_rng([*self.parts, key]))

    @property
    def rng(self) -> np.random.Generator:
        return self["main"]

    @property
    def seed(self) -> int:
        return int(np.random.default_rng(self.parts).integers(2**32))


class Steps:
    """A step function with its start, ``step(state, action, noise) -> (reward, state)``."""

    def __init__(
        self, step: Callable[..., Any], start: Any = 4, actions: Sequence[Any] = (0, 2, 4), **rest: Any
    ) -> None:
        self.step, self.start, self.actions, self.rest = step, start, tuple(actions), rest
        self.is_one_start = bool(self.rest.pop("is_one_start", False))

    def source(self) -> Any:
        from jointmdp import FunctionSimulator

        settings = {"discount": 0.9, "name": "steps", **self.rest}
        return FunctionSimulator(self.step, start=self.start, actions=list(self.actions), **settings)

    def run(self, action: Any, seed: int) -> float:
        noise = PlainNoise(1 if self.is_one_start else seed, 0)
        state = self.start(noise.rng) if callable(self.start) else copy.deepcopy(self.start)
        total = 0.0
        for time_ in range(1, 4):
            reward, state = self.step(state, action if time_ == 1 else self.actions[0], PlainNoise(seed, time_))
            total += reward
            if "observe" in self.rest:
                total += float(self.rest["observe"](state))
        return float(total)


class Keyed:
    """A step of JAX, ``step(key, state, action) -> (reward, state)``, and a reset."""

    actions = (0, 1, 2)

    def __init__(self, step: Callable[..., Any], reset: Any) -> None:
        self.step, self.reset = step, reset

    def source(self) -> Any:
        from jointmdp import JaxSimulator

        return JaxSimulator(self.step, self.reset, actions=len(self.actions), discount=0.9)

    def run(self, action: int, seed: int) -> float:
        import jax

        key = jax.random.key(seed)
        if not hasattr(self, "_compiled"):
            self._compiled = jax.jit(self.step)
        state = self.reset(jax.random.fold_in(key, 0)) if callable(self.reset) else self.reset
        total = 0.0
        for time_ in range(1, 4):
            reward, state = self._compiled(jax.random.fold_in(key, time_), state, action if time_ == 1 else 0)
            total += float(reward)
        return total


def reseed(thing: Any, seed: int, seen: set[int]) -> None:
    """Starts anew every generator that an environment holds in its attributes, wherever it lies."""
    if id(thing) in seen or not hasattr(thing, "__dict__"):
        return
    seen.add(id(thing))
    for name, part in vars(thing).items():
        stream = [seed, zlib.crc32(name.encode()), len(seen)]
        if isinstance(part, np.random.Generator):
            setattr(thing, name, np.random.default_rng(stream))
        elif isinstance(part, random.Random):
            part.seed(str(stream))
        elif not isinstance(part, type):
            reseed(part, seed, seen)


class World:
    """A Gymnasium environment: copied where it stands, given new dice, stepped."""

    actions = (0, 1, 2)

    def __init__(self, env: Any, *, is_reset: bool = False, is_observed: bool = False) -> None:
        self.env, self.is_reset, self.is_observed = env, is_reset, is_observed
        self.here: Any = None

    def source(self) -> Any:
        return self.env

    def run(self, action: int, seed: int) -> float:
        """Three steps from the one start under new dice, or from a start of the seed's own (`is_reset`)."""
        if self.here is None:
            self.env.reset(seed=1)
            self.here = copy.deepcopy(self.env)
        env, total = self.env if self.is_reset else copy.deepcopy(self.here), 0.0
        if self.is_reset:
            total += float(np.sum(env.reset(seed=seed)[0]))
        else:
            reseed(env, seed, set())
        for time_ in range(3):
            observation, reward, *_ = env.step(action if time_ == 0 else 0)
            total += float(reward) + (float(np.sum(observation)) if self.is_observed else 0.0)
        return total


class Walked:
    """A policy in a healthy world, after each of its first actions."""

    actions = (0, 2, 4)

    def __init__(self, steps: Steps, policy: Any) -> None:
        self.steps, self.policy = steps, policy

    def source(self) -> Any:
        return self.steps.source()

    @property
    def called(self) -> Any:
        """The policy as jointmdp asks it: an action is what the simulator calls it, not its place."""
        if len(inspect.signature(self.policy).parameters) > 1:
            return lambda state, rng: self.actions[self.policy(state, rng)]
        return lambda state: self.actions[self.policy(state)]

    def run(self, action: Any, seed: int) -> float:
        noise = PlainNoise(seed, 0)
        takes_rng = len(inspect.signature(self.policy).parameters) > 1
        state, total = copy.deepcopy(self.steps.start), 0.0
        for time_ in range(1, 5):
            reward, state = self.steps.step(state, action, PlainNoise(seed, time_))
            chosen = self.policy(state, noise["policy"]) if takes_rng else self.policy(state)
            action, total = self.steps.actions[int(chosen)], total + reward
        return float(total)


def plain(thing: Any) -> Run:
    """Anything planted as ``run(decision, seed)``."""
    if not inspect.isfunction(thing) and hasattr(thing, "run"):
        return thing.run
    if list(inspect.signature(thing).parameters)[1] == "noise":
        return lambda decision, seed: float(thing(decision, PlainNoise(seed)))
    return lambda decision, seed: float(thing(decision, seed))


# -- the proof ---------------------------------------------------------------------------------------------------


def seeds_of(count: int) -> list[int]:
    return [int(seed) for seed in np.random.default_rng(20).integers(2**32, size=count)]


def same_again(build: Callable[[], Any], asked: Sequence[Any], seeds: Sequence[int]) -> float:
    """The share of runs that give the same again: of the same thing in a scrambled order, and of one that is made anew
    in the opposite order."""
    places = [(decision, seed) for seed in seeds for decision in range(len(asked))]
    scrambled = [places[i] for i in np.random.default_rng(3).permutation(len(places))]
    one, other = plain(build()), plain(build())
    first = {place: one(asked[place[0]], place[1]) for place in places}
    again = [(one, scrambled), (other, places[::-1])]
    return float(np.mean([run(asked[i], seed) == first[i, seed] for run, order in again for i, seed in order]))


def results(run: Run, decisions: Sequence[Any], seeds: Sequence[int]) -> np.ndarray:
    """``[N, decisions]``"""
    return np.array([[run(decision, seed) for decision in decisions] for seed in seeds])


def gap_variances(found: np.ndarray) -> np.ndarray:
    """Of the gap of every pair of decisions."""
    pairs = itertools.combinations(range(found.shape[1]), 2)
    return np.array([(found[:, i] - found[:, j]).var() for i, j in pairs])


def evidence(row: Planted, is_broken: bool) -> dict[str, Any]:
    """The measures of a fault or of its twin, each on a thing of its own."""
    few, many = seeds_of(24 if row.runs >= 300 else 3), seeds_of(row.runs)
    found = results(plain(row.build(is_broken)), row.asked(), many)
    near = results(plain(row.build(is_broken)), row.asked()[:1], range(40)) if row.shows == "neighbours" else found
    return {
        "again": same_again(lambda: row.build(is_broken), row.asked(), few),
        "distinct": max(len(set(column)) for column in found.T) / len(found),
        "neighbours": len(set(near[:, 0])) / len(near),
        "gaps": gap_variances(found),
        "shared": 1.0 if found.std(axis=0).min() == 0 else np.corrcoef(found.T).min(),
        "variance": found.var(axis=0),
        "mean": found.mean(axis=0),
    }


def other_process(row: Planted, is_broken: bool, module: str, path: str) -> list[float]:
    """The results of three seeds in a new process, with other hashes."""
    code = (
        f"import sys; sys.path[:0] = {[path, *sys.path]!r}; import planted, {module} as found\n"
        f"row = next(row for row in found.FAULTS if row.name == {row.name!r})\n"
        f"print(planted.results(planted.plain(row.build({is_broken})), row.asked(), range(3)).ravel().tolist())"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(number) for number in asked.stdout.strip("[]\n").split(",")]


def proof(row: Planted, module: str = "faults_streams", path: str = str(Path(__file__).parent)) -> str:
    """What is not as a fault or a twin should be; empty where the fault is one and the twin is healthy."""
    fault, twin = evidence(row, True), evidence(row, False)
    wrong = []
    if twin["again"] < 1:
        wrong.append(f"the twin repeats {twin['again']:.0%} of its runs")
    if twin["shared"] < 0.2:
        wrong.append(f"two decisions of the twin have a correlation of {twin['shared']:.2f}")
    shown = {
        "again": lambda: fault["again"] < 1,
        "coincides": lambda: fault["distinct"] < 0.5 * twin["distinct"],
        "neighbours": lambda: fault["neighbours"] < 0.5 * twin["neighbours"],
        "gap": lambda: (fault["gaps"] > RATIO * twin["gaps"] + 1e-9).any(),
        "law": lambda: (np.abs(np.log(fault["variance"] / twin["variance"])) > np.log(RATIO)).any(),
    }
    if row.shows == "process":
        answers = [[other_process(row, is_broken, module, path) for _ in range(4)] for is_broken in (True, False)]
        if all(answer == answers[0][0] for answer in answers[0]):
            wrong.append("the fault gives the same in every process")
        if any(answer != answers[1][0] for answer in answers[1]):
            wrong.append("the twin gives something else in another process")
    elif not shown[row.shows]():
        wrong.append(f"the fault does not show in {row.shows!r}: {fault} beside {twin}")
    return "; ".join(wrong)


# -- what the library makes of it --------------------------------------------------------------------------------


def audited(row: Planted, is_broken: bool) -> Any:
    """The report of `jm.audit`."""
    import jointmdp as jm

    thing = row.build(is_broken)
    settings = {"num_states": 2, "num_samples": 24, "seconds": 60.0, **row.settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what an adapter says when it is made, `audit` says as well
        if row.decisions:
            return jm.audit(thing, decisions=row.asked(), **settings)
        if isinstance(thing, Walked):
            settings["policy"] = thing.called
        return jm.audit(thing.source(), **settings)


def compared(row: Planted, is_broken: bool) -> tuple[bool, list[str]]:
    """Whether `jm.compare` refused, and what it said of the noise, in an error, a warning or its answer."""
    import jointmdp as jm
    from jointmdp.errors import NoiseWarning

    thing = row.build(is_broken)
    settings = {"pilot": 100, "max_replications": 100, "seconds": 20.0, **row.compared}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if row.decisions:
                answer = jm.compare(thing, decisions=row.asked(), **settings)
            elif isinstance(thing, Walked):
                policies = {"asked": thing.called, "first": 0}
                answer = jm.compare(thing.source(), policies=policies, horizon=4, **settings)
            else:
                source = jm.as_simulator(thing.source())
                state = source.reset(0) if row.is_compared_in_a_state else None
                answer = jm.compare(source, 0, state, **{"horizon": 3, **settings})
        except jm.ModelError as error:
            return True, [str(error)]
    said = [str(found.message) for found in caught if issubclass(found.category, NoiseWarning)]
    return False, [*said, *map(str, answer.warnings)]


@dataclass(frozen=True)
class Found:
    """The verdict on one thing, and its words."""

    verdict: str
    words: str


def audit_verdict(row: Planted, is_broken: bool) -> Found:
    report = audited(row, is_broken)
    words = ", ".join(report.faults) or report["noise"].message
    if is_broken and set(report.faults) & row.names:
        return Found("right cause", words)
    return Found("other cause" if report.failures else "warned" if report.warnings else "passed", words)


def compare_verdict(row: Planted, is_broken: bool) -> Found:
    is_refused, said = compared(row, is_broken)
    return Found("refused" if is_refused else "warned" if said else "passed", "; ".join(said)[:400])


AUDIT = ("right cause", "other cause", "warned", "passed", "crashed")
COMPARE = ("refused", "warned", "passed", "crashed")
SEEN = {AUDIT: {"right cause"}, COMPARE: {"refused", "warned"}}
FAILED = ("right cause", "other cause", "refused", "crashed")


def table(
    rows: Sequence[Planted], verdict: Callable[[Planted, bool], Found], columns: tuple[str, ...], is_told: bool
) -> str:
    """One line per family: what became of its faults, and of its twins; and the lists of `test_planted_faults`."""
    counts: dict[str, Counter[str]] = {}
    missed, blamed = set(), set()
    for row, is_broken in itertools.product(rows, (True, False)):
        family, begun = counts.setdefault(row.family, Counter()), time.perf_counter()
        try:
            found = verdict(row, is_broken)
        except Exception as error:  # a crash is a verdict too
            found = Found("crashed", f"{type(error).__name__}: {error}"[:400])
        family[found.verdict if is_broken else f"twin {found.verdict}"] += 1
        family["all"] += is_broken
        if is_broken and found.verdict not in SEEN[columns]:
            missed.add(row.name)
        elif not is_broken and (found.verdict in FAILED or (found.verdict == "warned" and columns is COMPARE)):
            blamed.add(row.name)
        if is_told:
            who, took = "fault" if is_broken else "twin ", time.perf_counter() - begun
            print(f"{found.verdict:12s} {who} {row.family}: {row.name} ({took:.1f} s): {found.words}", flush=True)
    heads = ("faults", *columns, "twins failed", "twins warned")
    lines = [f"{'family':14s}" + "".join(f"{head:>13s}" for head in heads)]
    for family, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        failed = sum(count[f"twin {verdict}"] for verdict in FAILED)
        cells = [count["all"], *(count[column] for column in columns), failed, count["twin warned"]]
        lines.append(f"{family:14s}" + "".join(f"{cell:13d}" for cell in cells))
    return "\n".join([*lines, f"missed: {sorted(missed)}", f"twins: {sorted(blamed)}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", default=str(Path(__file__).parent / "faults_streams.py"))
    parser.add_argument("--rows", action="store_true", help="every row as it is found")
    parser.add_argument("--only", default="", help="rows whose family or name holds this")
    parser.add_argument("--what", default="audit,compare", help="proof, audit, compare")
    asked = parser.parse_args()
    path = Path(asked.module)
    sys.path[:0] = [str(path.parent), str(Path(__file__).parent)]
    module = importlib.import_module(path.stem)
    rows = [row for row in module.FAULTS if asked.only in f"{row.family}: {row.name}"]
    if "proof" in asked.what:
        for row in rows:
            wrong = proof(row, path.stem, str(path.parent))
            print(f"{'WRONG' if wrong else 'proved':7s} {row.family}: {row.name} {wrong}", flush=True)
    if "audit" in asked.what:
        print(table(rows, audit_verdict, AUDIT, asked.rows), flush=True)
    if "compare" in asked.what:
        print(table(rows, compare_verdict, COMPARE, asked.rows))


if __name__ == "__main__":
    importlib.import_module("planted").main()  # the module that the faults import, whose classes are theirs
