"""Whether noise that is said to be shared is shared, as far as a few replications tell.

Before anything is promised, the first replications are run twice, the second time with the alternatives in the opposite
order. Common random numbers give the same again. Where they do not, the answer would mean nothing and is refused, with
the likely cause; what is only odd (a global generator that moved without effect, noise that never mattered) is a
warning. The streams of a function of a decision and a seed are recorded and judged one by one (`stream_checks`), and
after sampling it is seen whether pairing has saved anything. `jointmdp.audit` looks more thoroughly.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from types import CodeType
from typing import Any

import numpy as np

from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError, NoiseWarning
from jointmdp.simulation.executors.executor import Executor, Serial
from jointmdp.simulation.montecarlo.alternatives import Alternatives, RunSampler
from jointmdp.simulation.montecarlo.pairing import PAIRS_NOTHING, Pairing
from jointmdp.simulation.montecarlo.samples import Replications, sample
from jointmdp.simulation.montecarlo.simulator_branches import OnEvent, QuerySampler
from jointmdp.simulation.simulators.fingerprints import CLOSED, safe_fingerprint, walk
from jointmdp.simulation.simulators.function_simulator import RunSimulator, WithNoise
from jointmdp.simulation.simulators.generators import kept_globals
from jointmdp.simulation.simulators.jax_simulator import JaxSimulator
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.table_simulator import TableSimulator
from jointmdp.simulation.watching.clocks import DAY, stopped_clock
from jointmdp.simulation.watching.hidden_state import faithful_copy, opened_files
from jointmdp.simulation.watching.other_processes import (
    LEARNS,
    OF_A_PROCESS,
    Apart,
    ForkedRun,
    Needed,
    Rows,
    checks_made,
    choices,
    compiled_clock,
    first_apart,
    first_difference,
    forked,
    may_differ,
    needed,
    others_choose,
    parcel,
    walked,
    watched_calls,
)
from jointmdp.simulation.watching.probe import WHO, Event, Record, are_close
from jointmdp.simulation.watching.recorded_draws import NOISE, UNSEEN, DrawLog, recorded, split, twins_installed
from jointmdp.simulation.watching.stream_checks import (
    CAUSES as CUT_DOWN,
)
from jointmdp.simulation.watching.stream_checks import (
    COINCIDE,
    FIXED,
    FOLD_SEEDS,
    FOLDS,
    OUT_OF_STEP,
    TWICE,
    UNSHARED,
    RecordedRun,
    files_handed_on,
    fixed_at_start,
    fold_of,
    judged,
    made_otherwise,
    unseen_keys,
)

CHECKED = 2  # replications that are run again, one where fewer than `MANY` are to be sampled
MANY = 100
UNMET = 2**31  # replications from here on are trials: nobody samples so many
FEW = 20  # replications from which on it is odd that none differs from another
RECORDED, MORE_SECONDS = 48, 0.25  # replications whose streams are looked at, more than those run again where quick
PATIENCE = 5.0  # times as long as here, that another process may take
FOR_MEMORIES = 8.0  # seconds at least, on machines with other work, to try what is kept
PATIENCE_OF_WALKS = 1.0  # seconds beyond what a replication took
LEAST_PAIRED = 50  # replications that tell whether pairing saves anything
MOST_SECONDS = 30.0  # that one waits for new processes
SAME = 1 - 1e-9  # a correlation that leaves nothing to be shown
UNTOUCHED = 4  # actions that are asked in one state, and draws of noise with which that is looked at
STARTS = 6  # that are held against each other
WALKS, CHOICES = 3, 8  # in which policies are asked, and what is asked in each
WALK = 20  # steps that are looked at, to see whether noise moves anything
GLOBAL = "the generator of the whole program"
CAUSES = {
    "start": "a start must depend on its seed alone, not on a generator of its own, the clock or earlier episodes, and "
    "no step may change what it returned",
    "policy": (
        "a policy must choose the same again: a stochastic predict takes deterministic=True, or make it "
        "f(observation, rng) and draw from that rng"
    ),
    "outcome": (
        "a step must draw from the noise that it is given and leave the state that it is given as it was; look for a "
        "generator without a seed, such as default_rng(), the clock, or something kept from earlier steps"
    ),
}

PROCESS_CAUSE = f"another outcome under the same noise. Likely cause: {OF_A_PROCESS}"
RUN_CAUSE = (
    "all its randomness must come from its seed, as in rng = np.random.default_rng(seed); look for numpy.random or "
    "random, a generator without a seed, the clock, or something kept between calls"
)


def _first_differ(one: list[Floats], other: list[Floats]) -> bool:
    return not are_close(one[0], other[0])


def _paid_otherwise(one: Rows | None, other: Rows | None) -> bool:
    places = set(one or ()) & set(other or ())
    return any(not are_close(one[place].reward, other[place].reward) for place in places)  # type: ignore[index]


class NoiseChecks:
    """The checks of one comparison; `warnings` are what a reader must know beside the answer."""

    def __init__(self, found: Alternatives, size: int, executor: Executor | None = None) -> None:
        self.found, self.name, self.warnings = found, found.name, list[str]()
        self._is_run = isinstance(found.sampler, RunSampler)
        self._chosen = list[tuple[Any, list[tuple[Any, Noise]], list[bytes]]]()  # by policies, before sampling
        self.is_alive = False  # whether replications were seen to differ
        self._replay = getattr(found.sampler, "replay", None)
        self._is_followed = True  # whether any draw was seen, where they are looked for
        self._elsewhere: dict[str, Future[Apart | str]] = {}
        self._seeds = itertools.count(step=2**16)  # of global generators, others for every record
        self._count = CHECKED if size >= MANY else 1
        self._steps = min(RECORDED, max(self._count, size // 8))  # first steps, a small part of the work
        if self._replay is not None:
            with ExitStack() as self._ended, kept_globals():
                self._repeat(self._count, executor)

    def _repeat(self, count: int, executor: Executor | None) -> None:
        """Run the first replications forwards and backwards, and one of them in a worker, where there are any."""
        # What is kept by seed tells nothing where an earlier call has met the seed already.
        first = UNMET + RECORDED * next(checks_made)
        simulator: Any = self.found.simulator
        walks = self._walks(next(checks_made))
        ask = (
            (lambda: self._rows(count, first, is_backwards=True))
            if self._is_run
            else (lambda: walks(is_backwards=True))
        )
        begun = time.monotonic()
        copy = forked(simulator, ask) if self._is_run or self._is_stepped else None
        if copy is not None:
            self._ended.callback(copy.close)
        there = [self._record(i, is_backwards=False) for i in range(count)]
        codes: set[CodeType] = set()
        with stopped_clock() as clock, watched_calls(codes):
            clock.ahead = DAY  # another day must give the same
            back = [self._record(i, is_backwards=True) for i in range(count)]
        records = [record for record, _ in there + back]
        moved = {name: who for record in records for name, who in record.moved.items()}
        for i, ((one, _), (other, _)) in enumerate(zip(there, back, strict=True)):
            difference = one.difference(other)
            if difference is not None:
                self._differs(i, one, difference, {name: moved[name] for name in sorted(one.unseeded(other))})
        if self._is_run:
            begun = time.monotonic()
            rows = self._check_streams(count, first)
            others = None if copy is None else copy.result(max(1.0, PATIENCE * (time.monotonic() - begun)))
            for i, (row, other) in enumerate(zip(rows, rows if others is None else others, strict=False)):
                if are_close(row, other):
                    continue
                now = self._rows(count, first)
                if not are_close(rows[0], now[0]):
                    raise ModelError(
                        f"{self.name} gave something else when trial 0 was run again: something is kept from run to "
                        "run, or drawn from a generator without a seed, in runs that are rare"
                    )
                again = forked(simulator, lambda: self._rows(count, first))
                if again is not None and not are_close(rows[0], (again.result(PATIENCE) or rows)[0]):
                    raise ModelError(f"{self.name} depends on the process: a copy of this one gives {PROCESS_CAUSE}")
                j = next(j for j in range(len(row)) if not are_close(row[j], other[j]))
                reached = walk([self.found.simulator], lambda value: not isinstance(value, CLOSED), 8, 5_000)
                caches = {f"{value.__name__}()" for _, _, value in reached if hasattr(value, "cache_info")}
                named = f", such as that of {' or '.join(sorted(caches))}" if caches else ""
                raise ModelError(
                    f"what one decision leaves behind shows in the results of others: trial {i} of {self.name} "
                    f"gave {row[j]:.6g} for {self.found.labels[j]} after the decisions before it, and {other[j]:.6g} "
                    f"after those behind it. Look for something kept from run to run, a cache that leaves out the "
                    f"decision{named}"
                )
            seconds = max(FOR_MEMORIES, PATIENCE * (time.monotonic() - begun))
            calls = (lambda: self._rows(1, first)), (lambda: self._rows(1, first + RECORDED, is_backwards=True))
            memory = needed(simulator, *calls, _first_differ, seconds, codes)
            if others is not None:
                self._judge(memory)
        elif self.found.sharing != "none":
            self._check_first_steps(count)
            self._check_starts()
        self._check_untouched()
        if copy is not None and not self._is_run:
            self._check_walks(copy, walks, PATIENCE_OF_WALKS + time.monotonic() - begun, codes)
        if reader := compiled_clock(codes):
            self._warn(f"{reader} reads the time where it cannot be moved: what depends on it is otherwise tomorrow.")
        self._begin_elsewhere(codes)
        self._check_policies()
        self.is_alive = count > 1 and there[0][0].difference(there[1][0]) is not None
        # A function of a seed may well seed a global generator with it: that it gave the same again is all that counts.
        loose = set().union(*(one.unseeded(other) for (one, _), (other, _) in zip(there, back, strict=True)))
        for name, who in moved.items() if not self._is_run else ():
            if name not in loose:  # each who seeds it leaves it in one place
                continue
            self._warn(
                f"{WHO[who]} draws from {name}, {GLOBAL}. Nothing came of it in what was run again, but no "
                f"replication can set it: {_cure(who, name)}."
            )
        if executor is not None and not isinstance(executor, Serial):
            here = there[0][1].returns
            away = sample(self.found.sampler, 0, 1, self.found.sharing, executor).returns
            if not are_close(here, away):
                raise ModelError(
                    f"replication 0 of {self.name} returned {here[0].tolist()} here and {away[0].tolist()} in a "
                    "worker: something differs between processes, such as the hash of a text or the order of a set"
                )

    @property
    def _is_stepped(self) -> bool:
        """Whether it is somebody's own simulator whose actions are known."""
        simulator: Any = self.found.simulator
        is_own = isinstance(self.found.sampler, QuerySampler) and not isinstance(simulator, TableSimulator)
        is_notebook = "zmq" in sys.modules  # whose kernel dies of copies of an environment's process
        return is_own and not is_notebook and simulator is not None and simulator.action_names is not None

    def _walks(self, check: int) -> Callable[..., Rows]:
        simulator: Any = self.found.simulator
        return lambda **settings: walked(simulator, 0, check, range(len(simulator.action_names)), **settings)

    def _check_walks(
        self, before: ForkedRun, walks: Callable[..., Rows], seconds: float, codes: Collection[CodeType]
    ) -> None:
        """Whether short walks pay the same after what has been run since, and without what that has left behind."""
        simulator: Any = self.found.simulator
        then, pair = before.result(seconds), [forked(simulator, walks) for _ in range(2)]
        now = [None if run is None else run.result(seconds) for run in pair]
        if then is None or None in now:
            return
        if _paid_otherwise(now[0], now[1]):
            raise ModelError(f"{self.name} depends on the process: a copy of this one gives {PROCESS_CAUSE}")
        if _paid_otherwise(now[0], then):
            raise ModelError(
                f"what earlier steps of {self.name} leave behind shows in later ones under the same noise: something "
                "is kept outside of the state, in the environment, its class, a cache or a generator"
            )
        calls = (lambda: walks(seeds=0)), (lambda: self._walks(-1)(seeds=0, is_backwards=True))
        self._judge(needed(simulator, *calls, _paid_otherwise, seconds + FOR_MEMORIES, codes))

    def _judge(self, memory: Needed) -> None:
        """Refuse what depends on a memory."""
        if memory.not_tried:
            names = ", ".join(memory.not_tried[:3])
            self._warn(f"There was no time to see whether what earlier calls have left in {names} matters.")
        if memory.where:
            raise ModelError(
                f"{memory.where} holds what earlier calls have left there, and without it {self.name} gives another "
                "result under the same noise: a cache must know all that its entries depend on, the seed too"
            )

    def _begin_elsewhere(self, codes: set[CodeType]) -> None:
        """Walk in a new process, where the code that runs could mean something else there; `finish` has a look."""
        simulator: Any = self.found.simulator
        if simulator is None or simulator.action_names is None or not may_differ(simulator, codes):
            return
        walk = partial(walked, simulator, 0, next(checks_made), range(len(simulator.action_names)))
        sent = b"" if hasattr(simulator, "query_batch") else parcel(walk)
        if not sent or isinstance(sent, str):  # it cannot be sent
            return
        here = walk()
        self._await(self.name, lambda: first_apart(here, sent, codes, first_difference, MOST_SECONDS))

    def _await(self, what: str, ask: Callable[[], Apart | str]) -> None:
        """Ask new processes beside the sampling."""
        found = self._elsewhere[what] = Future[Apart | str]()
        threading.Thread(target=lambda: found.set_result(ask()), daemon=True).start()

    def _check_policies(self) -> None:
        """What policies choose in some states: new processes choose the same, and they will when all is sampled."""
        simulator, sampler = self.found.simulator, self.found.sampler
        if simulator is None or isinstance(simulator, TableSimulator) or not isinstance(sampler, QuerySampler):
            return
        with suppress(Exception):  # what cannot be asked is told where it is sampled
            asked = list[tuple[Any, Noise]]()
            for agent in {id(agent): agent for agent in sampler.agents}.values():
                codes: set[CodeType] = set()
                first = simulator.start(Noise("start", sampler.seed, 0)) if self._state is None else self._state
                with watched_calls(codes):
                    choices(agent, [(first, Noise("choice"))])
                if not codes:  # a policy of ours
                    continue
                asked = asked or self._states_to_choose_in()
                with watched_calls(codes):
                    self._chosen.append((agent, asked, choices(agent, asked)))
                if may_differ(agent, codes):
                    ask = partial(others_choose, agent, asked, codes, MOST_SECONDS)
                    self._await(f"the policy in {self.name}", ask)

    def _states_to_choose_in(self) -> list[tuple[Any, Noise]]:
        """States of a few walks, each with noise for a choice."""
        simulator, sampler = self.found.simulator, self.found.sampler
        assert simulator is not None
        assert isinstance(sampler, QuerySampler)
        asked, begun, state = list[tuple[Any, Noise]](), time.monotonic(), None
        for number, t in itertools.product(range(WALKS), range(CHOICES)):
            if not t:
                state = simulator.start(Noise("start", sampler.seed, number)) if self._state is None else self._state
            if simulator.is_over(state) or time.monotonic() - begun > MORE_SECONDS:
                continue
            noise, legal = Noise("choice", number, t), simulator.available(state)
            asked.append((state, noise))
            state = simulator.query(state, [legal[(number + t) % len(legal)]], noise.fresh())[0].state
        return asked

    @property
    def _state(self) -> Any:
        return getattr(self.found.sampler, "state", None)

    def _check_choices(self) -> None:
        """Whether sampling has taught a policy something."""
        for agent, asked, chosen in self._chosen:
            now = chosen
            with suppress(Exception):
                now = choices(agent, asked)
            if now != chosen:
                raise ModelError(
                    f"the policy in {self.name} does not choose as it did before sampling, for the same observation "
                    f"and noise: {LEARNS}"
                )

    def _rows(
        self,
        count: int,
        first: int,
        *,
        is_backwards: bool = False,
        on_event: Callable[[int], OnEvent] = lambda _: lambda *_: None,
    ) -> list[Floats]:
        """The results of replications from `first` on: `count` of them, and more where that is quick."""
        assert self._replay is not None
        rows, begun = list[Floats](), time.monotonic()
        for i in range(RECORDED if count > 1 else 1):
            if i >= count and time.monotonic() - begun > MORE_SECONDS:
                break
            rows.append(self._replay(first + i, self.found.sharing, on_event(i), is_backwards=is_backwards).returns[0])
        return rows

    def _check_streams(self, count: int, first: int) -> list[Floats]:
        """Record the streams of all decisions in some trial replications, and judge them one by one; the results."""
        simulator, runs = self.found.simulator, list[RecordedRun]()
        assert isinstance(simulator, RunSimulator)

        def noting(index: int) -> OnEvent:
            def note(what: str, step: int, branch: int, answer: Any) -> None:
                label, opened = self.found.labels[branch], tuple(files)
                files.clear()
                log = split(is_thorough=len(runs) + 1 < len(self.found.labels))  # in the first trial
                runs.append(RecordedRun(label, f"trial {index}", log, files=opened))

            return note

        with recorded(DrawLog(is_thorough=True)), opened_files() as files:
            rows = self._rows(count, first, on_event=noting)
            drawn = [stream for run in runs for stream in run.log.drawn]
            is_unseen = all(s.kind in UNSEEN for s in drawn) and unseen_keys([run.log for run in runs])
            self._is_followed = bool(drawn) and not is_unseen
            has_seeds = any(s.seed is not None and s.kind != NOISE for run in runs for s in run.log.drawn)
            seed = Noise("folded").seed % 2**31
            for apart in (0, *FOLDS) if has_seeds and count > 1 else ():
                simulator.query(simulator.start(Noise("start")), [0], Noise.of_seed(seed + apart))
                runs.append(RecordedRun(self.found.labels[0], f"seed {seed + apart}", split()))
        for found in [*judged(runs), *files_handed_on(runs)] if self.found.sharing != "none" else ():
            if found.fault == COINCIDE:
                raise ModelError(f"{found.fault} in {self.name}: {found.text}. Likely cause: {found.cause}")
            if found.fault != FIXED:  # which may be a fixed instance
                self._warn(f"{found.fault}: {found.text}: {found.cause}.")
        if count > 1 and not has_seeds and self.found.sharing != "none":
            self._check_folds(simulator)
        return rows

    def _check_folds(self, simulator: RunSimulator) -> None:
        """Whether seeds that nobody sees used are cut down first: then a few replications come again and again."""
        decisions, until = range(len(simulator.decisions)), time.monotonic() + MORE_SECONDS

        def outcomes(seed: int) -> list[float]:
            return [simulator.query(False, [k], Noise.of_seed(seed))[0].reward for k in decisions]

        apart, timed = None, partial(itertools.takewhile, lambda _: time.monotonic() < until)
        with suppress(Exception):  # what a run raises is told where it is sampled
            if not isinstance(simulator.run, WithNoise):  # which makes its noise from the whole seed
                apart = fold_of(outcomes, list.__eq__, timed)
        if apart is not None:
            text = f"seeds that differ by {apart:,} gave the same result {FOLD_SEEDS} times of {FOLD_SEEDS}"
            self._warn(f"{COINCIDE}: {text}, so that there are fewer replications than it seems: {CUT_DOWN[COINCIDE]}.")

    def _check_first_steps(self, count: int) -> None:
        """Record the streams of every alternative's first step, and judge them one by one."""
        simulator, sampler = self.found.simulator, self.found.sampler
        if simulator is None or isinstance(simulator, TableSimulator):
            return
        if not isinstance(sampler, QuerySampler) or sampler.actions is None:
            return
        assert simulator is not None
        if len(set(map(str, sampler.actions))) < 2:  # one action beside itself
            return
        runs, begun = list[RecordedRun](), time.monotonic()
        # What a step raises is told where it is sampled, with its replication.
        with twins_installed(), suppress(Exception):
            for i in range(self._steps):
                if i >= count and time.monotonic() - begun > MORE_SECONDS:
                    break
                state = simulator.start(Noise("start", sampler.seed, i)) if sampler.state is None else sampler.state
                if simulator.is_over(state):
                    continue
                where = ("noise", sampler.seed, i, 0)
                for label, action in zip(self.found.labels, sampler.actions, strict=True):
                    noise = Noise(*where, 0)
                    if self.found.sharing == "state":
                        noise.with_clock(Noise(*where, "clock"))
                    with recorded(DrawLog(is_thorough=not i)) as log:
                        simulator.query(state, [action], noise)
                    runs.append(RecordedRun(label, f"replication {i}", log, "the first step"))
        for found in judged(runs):
            if found.fault in (UNSHARED, OUT_OF_STEP, FIXED, COINCIDE, TWICE):
                self._warn(f"{found.fault}: {found.text}: {found.cause}.")

    def _check_untouched(self) -> None:
        """Whether a step leaves the state that it is given as it was: a change may come out alike in every order."""
        simulator, sampler = self.found.simulator, self.found.sampler
        if simulator is None or isinstance(simulator, TableSimulator) or not isinstance(sampler, QuerySampler):
            return
        differing, begun = "", time.monotonic()
        with suppress(Exception):  # what cannot be asked is told where it is sampled
            state = simulator.start(Noise("start", sampler.seed, 0)) if sampler.state is None else sampler.state
            actions = (sampler.actions or tuple(simulator.available(state)))[:UNTOUCHED]
            is_one = all(action == actions[0] for action in actions)  # whose branches are one
            private = None if is_one or simulator.is_over(state) else faithful_copy(state)
            for k, action in enumerate(actions if private is not None else ()):
                simulator.query(state, [action], Noise("untouched", k))
            for draw, action in itertools.product(range(UNTOUCHED), actions if private is not None else ()):
                places = state, faithful_copy(private), faithful_copy(private)
                found = [simulator.query(at, [action], Noise("touched", draw))[0] for at in places]
                seen = [safe_fingerprint(simulator.observe(one.state)) for one in found]
                is_settled = seen[1] == seen[2] and are_close(found[1].reward, found[2].reward)
                if is_settled and not (seen[0] == seen[1] and are_close(found[0].reward, found[1].reward)):
                    differing = simulator.action_label(action)
                if differing or time.monotonic() - begun > MORE_SECONDS:
                    break
        if differing:
            raise ModelError(
                f"a step of {self.name} changes the state that it is given: {differing} gives something else there "
                "once others were asked. A step must return a new state: copy what it works on first"
            )

    def _check_starts(self) -> None:
        """Whether starts that are all one draw from a seed of their own."""
        simulator, sampler = self.found.simulator, self.found.sampler
        if simulator is None or isinstance(simulator, TableSimulator):
            return
        if not isinstance(sampler, QuerySampler) or sampler.state is not None:
            return
        seen, logs, begun = set[bytes](), list[DrawLog](), time.monotonic()
        with twins_installed(), suppress(Exception):  # what a start raises is told where it is sampled
            while len(logs) < STARTS and len(seen) < 2 and time.monotonic() - begun < MORE_SECONDS:
                with recorded() as log:
                    state = simulator.start(Noise("start", sampler.seed, len(logs)))
                seen.add(safe_fingerprint(simulator.observe(state)))
                logs.append(log)
        what = fixed_at_start(logs) if len(logs) > 2 and len(seen) == 1 else ""
        if what:
            self._warn(f"All replications begin alike: {what}; if one start is meant, all is well.")

    def _log(self, index: int) -> DrawLog:
        """The streams of one replication."""
        with recorded() as log:
            self._record(index, is_backwards=False)
        return log

    def _on_day(self, index: int, days: float, *, is_backwards: bool) -> Record:
        with stopped_clock() as clock:
            clock.ahead = days * DAY - time.time() % DAY  # the same time of the day, whatever a second is read to
            return self._record(index, is_backwards=is_backwards)[0]

    def _is_clock(self, index: int) -> bool:
        """Whether two runs of a replication agree on one day, and another two on another day, and these do not."""
        days = [[self._on_day(index, day, is_backwards=turn) for turn in (False, True)] for day in (1.0, 2.3, 1.0)]
        settled = all(one.difference(other) is None for one, other in (*days, (days[0][0], days[2][0])))
        return settled and days[0][0].difference(days[1][0]) is not None

    def _differs(self, index: int, one: Record, event: Event, moved: dict[str, str]) -> None:
        """Say what a difference between two runs of one replication means."""
        place = f"step {event.step} of replication {index}"
        if event.what != "start":
            place += f" ({self.found.labels[event.branch]})"
        if event.what == "observation":
            self._warn(
                f"{WHO[event.what]} was not the same when {place} of {self.name} was run again; no reward and no "
                "action changed. Is there a clock in the observation, or noise that is not the replication's?"
            )
            return
        drawn = [
            f"{'it' if self._is_run else WHO[who]} draws from {name}, {GLOBAL}: {_cure(who, name)}"
            for name, who in moved.items()
        ]
        if not drawn and self._is_clock(index):
            who = "run(decision, seed)" if self._is_run else WHO[event.what]
            raise ModelError(
                f"no noise is shared here: {who} reads the clock: on another day {place} of {self.name} gave something "
                "else. Give it the time, or count it in the model"
            )
        again, _ = self._record(index, is_backwards=False)
        same = again.difference(one)
        if not drawn and (same is None or same.what == "observation"):
            raise ModelError(
                f"the alternatives do not see the same noise: {place} of {self.name} depends on which of them is "
                "asked first, as if one drew on where the other had stopped. A step must draw from the noise that it "
                "is given alone, and change nothing that the others see"
            )
        who, cause = WHO[event.what], CAUSES[event.what]
        if self._is_run:
            who, cause = "run(decision, seed)", RUN_CAUSE
            logs = [self._log(index) for _ in range(2)]
            if unseeded := made_otherwise(*logs):
                cause = f"{unseeded}: {RUN_CAUSE.partition(';')[0]}"
        elif event.what == "start" and getattr(self.found.sampler, "state", None) is not None:
            who, cause = "the state to begin in", "a step changed it; a step must return a new state"
        raise ModelError(
            f"no noise is shared here: {who} gave something else when {place} of {self.name} was run again. "
            f"Likely cause: {'; '.join(drawn) or cause}"
        )

    def is_quiet(self, run: Replications) -> bool:
        """Whether nothing is random as far as seen: some replications, each with its own seed, are exactly one."""
        is_one = len(run.returns) >= FEW and not np.ptp(run.returns, axis=0).any() and not np.ptp(run.steps)
        return can_tell(self.found) and self._count > 1 and not self.is_alive and is_one

    def _is_dead(self) -> bool:
        """Whether nothing that was looked at changes with the noise; tables say themselves what is random."""
        simulator, place = self.found.simulator, self._place
        if self._replay is not None or not isinstance(simulator, JaxSimulator):
            return self._replay is not None and not self.is_alive
        # Do two short walks with the same actions lead apart?
        walks = [simulator.start(Noise("alive", k)) if place is None else place for k in range(2)]
        for t in range(WALK):
            if simulator.identity(walks[0]) != simulator.identity(walks[1]):
                return False
            if simulator.is_over(walks[0]):
                return True
            action = simulator.available(walks[0])[0]
            steps = [simulator.query(state, [action], Noise("alive", k, t))[0] for k, state in enumerate(walks)]
            if steps[0].reward != steps[1].reward:
                return False
            walks = [step.state for step in steps]
        return True

    def finish(self, run: Replications) -> list[str]:
        """All warnings, after a look whether noise ever mattered; returns that end at a merger do not tell."""
        n, whole, simulator = len(run.returns), run.whole, self.found.simulator
        self._check_choices()
        for what, asked in self._elsewhere.items():
            there = asked.result()
            if isinstance(there, Apart) and there.text:
                raise ModelError(
                    f"{what} depends on the process ({there.text}): a new one gives another outcome under the same "
                    f"noise. Likely cause: {there.cause}"
                )
        is_same = _are_all_same(whole) and (run.is_whole is None or are_close(run.leads, whole.leads[:1]))
        for _, text in getattr(simulator, "key_faults", ()):
            self._warn(f"{text}.")
        told = str(getattr(simulator, "frozen_start", ""))
        if told and self._place is None:
            self._warn(f"All replications begin alike: {told}.")
        frozen = str(getattr(simulator, "frozen_noise", "")).rstrip(".")
        if frozen and (is_same or (not len(whole.returns) and _are_all_same(run))):
            raise ModelError(
                f"the noise of {self.name} is frozen: {frozen}. All {n:,} replications are one and the same future, "
                "which says nothing of others. If nothing is random from here on, say so: simulator.frozen_noise = ''"
            )
        if frozen:
            self._warn(f"Some of the noise of {self.name} is frozen: {frozen}. Replications differ by the rest alone.")
        elif is_same and n >= FEW and self._is_dead():
            what = "does run use its seed?" if self._is_run else "see jointmdp.audit."
            self._warn(
                f"Noise never mattered: all {n:,} replications of {self.name} gave the same. Either nothing is random "
                f"from here on, or the noise is fixed inside, by a seed of its own or a hidden generator; {what}"
            )
        is_paired = self.found.sharing != "none" and simulator is not None and not isinstance(simulator, TableSimulator)
        if is_paired and len(whole.returns) >= LEAST_PAIRED:
            pairing = Pairing(whole.returns[:, : len(self.found.labels)], self.found.labels)
            if pairing.doubt:
                what = "Do they draw from the same streams, for the same purpose? See jointmdp.audit."
                self._warn(f"{PAIRS_NOTHING}: {pairing.doubt}. {what}")
            elif not self._is_followed and any(pair.correlation < SAME for pair in pairing.pairs):
                self._warn(
                    f"What {self.name} draws cannot be followed (dice of its own, an engine in another language): that "
                    f"the decisions share it, draw by draw, is not shown. What pairing tells: {pairing.text}."
                )
        return self.warnings

    @property
    def _place(self) -> Any:
        """The state that a compiled walk begins in; None where each begins in its own."""
        return getattr(getattr(self.found.sampler, "dynamics", None), "place", None)

    def _record(self, index: int, *, is_backwards: bool) -> tuple[Record, Replications]:
        assert self._replay is not None
        record = Record(next(self._seeds))
        return record, self._replay(index, self.found.sharing, record, is_backwards=is_backwards)

    def _warn(self, text: str) -> None:
        text = text[:1].upper() + text[1:]
        self.warnings.append(text)
        warnings.warn(text, NoiseWarning, stacklevel=5)


def can_tell(found: Alternatives) -> bool:
    """Whether two replications can be held against each other step by step, observations included.

    One number a run tells little: rare events, a failure in a hundred, leave most runs exactly as they are.
    """
    return hasattr(found.sampler, "replay") and not isinstance(found.sampler, RunSampler)


def _are_all_same(run: Replications) -> bool:
    return len(run.returns) > 1 and are_close(run.returns, run.returns[:1]) and not np.ptp(run.steps)


def _cure(who: str, name: str) -> str:
    if who == "policy":
        return CAUSES["policy"]
    return f"draw from the noise or the seed that is given instead of {name}"
