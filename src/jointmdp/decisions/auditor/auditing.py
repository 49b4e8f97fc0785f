"""`audit`: which states to look at, which checks to make in which order, and how much of each fits into the time."""

from __future__ import annotations

import time
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jointmdp.decisions.auditor import determinism_checks, draw_checks, process_checks, state_checks
from jointmdp.decisions.auditor.audit_report import (
    CLAIMS,
    OUT_OF_TIME,
    RUN_CAUSES,
    AuditReport,
    Check,
    failed,
    skipped,
    warned,
)
from jointmdp.decisions.auditor.determinism_checks import HIDDEN
from jointmdp.decisions.auditor.process_checks import OtherProcesses
from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.simulation.simulators.clocks import OutOfTime, Watchdog
from jointmdp.simulation.simulators.function_simulator import RunSimulator
from jointmdp.simulation.simulators.generators import kept_globals
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.probe import FOLLOWED, START, Probe, ProbeState, Question, Unanswered
from jointmdp.simulation.simulators.registry import as_simulator
from jointmdp.simulation.simulators.simulator import Action, Agent, Simulator, Snapshot, as_agent

SEEDS = 8  # tried on a run function, to see whether its outcome changes with the seed
MOST_ACTIONS = 4  # of a state in one query; other walks look at others
LONG_WALK = 300  # steps of the one walk that looks for an end
LONG_WALK_SECONDS = 0.5
MOST_STATES = 1_000
LEAST_SAMPLES = 12  # two different constants then have level 2 / C(24, 12), below 1e-6: even so few tell them apart


class Plan(NamedTuple):
    """How much is looked at."""

    slower_than: float  # seconds an action
    walks: int
    steps: int  # of a walk
    states: int
    draws: int  # of noise in a state
    samples: int


PLANS = (
    Plan(0.0, 5, 24, 8, 6, 100),
    Plan(5e-4, 4, 16, 6, 3, 48),
    Plan(2e-3, 3, 8, 4, 2, 24),
    Plan(1e-2, 2, 6, 2, 2, 16),
    Plan(5e-2, 1, 3, 2, 1, 12),
    Plan(2e-1, 1, 3, 1, 1, 12),
)
SECONDS = 60.0  # of an audit, unless told otherwise
LEAST_GRACE, GRACE = 0.5, 0.1  # what a query under way may take longer: seconds, and what part of the time given
HANGS = 20  # times as long as any query that was answered
# What part of the time that is left a check may take; those that come first leave something for the others.
SHARE = 0.4


class AuditedRun(RunSimulator):
    """A function of a decision and a seed; whether its numbers are finite is left to the checks."""

    least_decisions, is_finite = 1, False


def audited(given: Any, decisions: Mapping[str, Any] | Sequence[Any] | None) -> Simulator:
    """The simulator to audit, from what a user has."""
    if decisions is not None and not isinstance(given, Simulator):
        return AuditedRun(given, decisions)
    if isinstance(given, types.FunctionType | types.MethodType):
        raise ModelError(
            f"{given.__name__} is a function; give decisions=[…] to run it with, or make it a FunctionSimulator"
        )
    return as_simulator(given)


def audit(  # many parameters: a front door, one keyword for each setting
    simulator: Any,
    *,
    policy: Any = "uniform",
    actions: Sequence[Action] | None = None,
    decisions: Mapping[str, Any] | Sequence[Any] | None = None,
    seed: int = 0,
    num_states: int | None = None,
    num_samples: int | None = None,
    false_alarm: float = 1e-4,
    seconds: float = SECONDS,
) -> AuditReport:
    """Check that a simulator gives the actions of a query the same noise, and guess the cause where it does not.

    Args:
        simulator: a `Simulator` or what can be made into one, or a function ``run(decision, seed) -> outcome``
            together with `decisions`.
        policy: by which to walk to the states that are looked at.
        actions: those to ask for; by default up to four of the available ones in each query.
        decisions: what to hand to a plain `run` function.
        seed: of the walks and of all noise.
        num_states: states to look at; by default as many as the simulator's speed allows, eight at most.
        num_samples: samples on each side of a statistical test; by default 12 to 100, by speed.
        false_alarm: the probability at most with which a healthy simulator fails the check of the law.
        seconds: the time that the audit may take, to the nearest query. What did not fit is not checked, and says so;
            a query that does not return is ended a little later, and named.
    """
    found = audited(simulator, decisions)
    false_alarm = checks.as_fraction("false_alarm", false_alarm)
    seed = checks.as_count("seed", seed, 0)
    wanted = None if num_states is None else checks.as_count("num_states", num_states, 1, MOST_STATES)
    samples = None if num_samples is None else checks.as_count("num_samples", num_samples, LEAST_SAMPLES)
    limit = checks.as_positive("seconds", seconds)
    with kept_globals(), Meter(f"auditing {found.name}") as meter:
        under_way = _Audit(found, policy, actions, seed, wanted, samples, false_alarm, limit, meter)
        with under_way.probe.watchdog:
            return under_way.report()


@dataclass(eq=False)
class _Audit:
    """One audit under way."""

    simulator: Simulator
    policy: Any
    actions: Sequence[Action] | None
    seed: int
    num_states: int | None
    num_samples: int | None
    false_alarm: float
    seconds: float
    meter: Meter
    plan: Plan = PLANS[0]
    cost: float = 0.0
    num_tests: int = 0
    checks: dict[str, Check] = field(default_factory=dict)
    states: list[ProbeState] = field(default_factory=list)  # that are looked at closely
    pool: list[ProbeState] = field(default_factory=list)  # all that were reached

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        watchdog = Watchdog(self.seconds + max(LEAST_GRACE, GRACE * self.seconds))
        self.probe = Probe(self.simulator, self.seed, actions_at=self._actions_at, watchdog=watchdog)
        self.given = self._given()
        self.agent = self._agent()

    def _given(self) -> list[Action] | None:
        if self.actions is not None:
            if not len(self.actions):
                raise ModelError("actions is empty; name the actions to audit")
            return [self.simulator.action_index(action) for action in self.actions]
        if self.simulator.action_names is not None:
            return None
        try:
            return [self.simulator.random_action(Noise("audit actions", self.seed, i).rng) for i in range(3)]
        except ModelError as error:
            raise ModelError(f"{error}; give actions=[…] to ask for") from None

    def _agent(self) -> Agent:
        given = self.given
        if given is not None and isinstance(self.policy, str) and self.policy == "uniform":
            return lambda state, noise: given[int(noise.uniform * len(given))]
        return as_agent(self.policy, self.simulator)

    def report(self) -> AuditReport:
        reason = "a query was not answered"
        try:
            self._run()
            self._add(Check("answers", "pass", f"{self.probe.asked:,} queries were answered"))
        except Unanswered as error:
            self._add(failed("answers", str(error), "query not answered"))
        except OutOfTime:
            reason = self._too_late
            late = self.probe.watchdog.late
            if late is not None and late.seconds > max(self.seconds / 2, HANGS * self.probe.watchdog.slowest):
                message = f"{late.where}: it had not returned after {late.seconds:.1f} s, when the time was over"
                self._add(failed("answers", message, "query does not return"))
            elif self.probe.asked:
                self._add(Check("answers", "pass", f"{self.probe.asked:,} queries were answered"))
                self._add(state_checks.check_rewards(self.probe), state_checks.check_finite(self.probe))
        found = [self.checks.get(name, skipped(name, reason)) for name in CLAIMS]
        return AuditReport(
            self.simulator.name,
            tuple(self._in_words(self._with_roundings(check)) for check in found),
            self.false_alarm,
            self.num_tests,
            len(self.states),
            self.plan.samples,
            self.seed,
            time.monotonic() - self.begun,
        )

    @property
    def _too_late(self) -> str:
        return f"{OUT_OF_TIME} after {self.seconds:g} s; give it more with seconds="

    @property
    def _left(self) -> float:
        return self.begun + self.seconds - time.monotonic()

    @contextmanager
    def _timed(self, *names: str, share: float = SHARE) -> Iterator[None]:
        """The time of one check, or of several together: where it runs out before anything was found, they say so."""
        if self._left <= 0:
            raise OutOfTime
        self.meter.update(1 - self._left / self.seconds, names[0])
        self.probe.deadline, self.probe.ran_out = time.monotonic() + share * self._left, False
        try:
            yield
        except OutOfTime:
            self._add(*(skipped(name, self._too_late) for name in names if name not in self.checks))
            if self.probe.watchdog.late is not None:
                raise

    def _add(self, *found: Check) -> None:
        self.checks.update({check.name: check for check in found})

    def _run(self) -> None:
        """The checks, those first whose faults would show in the others; each fault is then worked around."""
        probe = self.probe
        start = probe.reached(probe.begin(0), START, ())
        if self.simulator.is_over(start.state):
            raise Unanswered("the start is over already, so that nothing can be asked")
        start = start._replace(actions=self._actions_at(start.state)).with_content()
        elsewhere = OtherProcesses(self.simulator, self.seed, start.actions)
        with self._timed("untouched", share=0.1):
            untouched = state_checks.check_untouched(probe, start)
        self._add(untouched)
        probe.hands_in_copies = untouched.fault == "mutating query"
        probe.keeps_copies = probe.asks_singly = untouched.status == "fail"
        with self._timed("walks", share=0.2):
            self._collect()
        with self._timed("observation", share=0.1):
            self._add(state_checks.check_observation(probe, self.states))
            probe.is_blind = self.checks["observation"].status == "fail"
        with self._timed("globals", share=0.2):
            self._add(determinism_checks.check_globals(probe, self.states))
            probe.pins_globals = self.checks["globals"].status == "fail"
            probe.asks_singly |= probe.pins_globals
        is_settled = self._check_repeats()
        with self._timed("noise"):
            self._check_noise(is_settled)
        with self._timed("repetition", "order"):
            self._check_queries(is_settled)
        with self._timed("live"):
            self._check_elsewhere(elsewhere, is_settled)
        with self._timed("law"):
            self._check_law()
        with self._timed("identity"):
            self._check_identity(is_settled)
        self._find_ends()
        # The 0 that a state pays when it is over is no reward, so those are asked last.
        self._add(state_checks.check_rewards(probe), state_checks.check_finite(probe))
        self._add(state_checks.check_over(probe, self.states))
        self._add(state_checks.check_kept(self.states, untouched, probe.asked))

    def _check_repeats(self) -> bool:
        """Whether the same question has the same answer, whatever ran before."""
        questions = [Question(s, a, d) for s in self.states for a in s.actions for d in range(self.plan.draws)]
        with self._timed("restore", "history"):
            restore, answers, unsettled = determinism_checks.check_restore(self.probe, questions)
            self._add(restore)
            if restore.status == "fail":
                self._add(skipped("history", "restoring fails already when nothing is run in between"))
            else:
                self._add(determinism_checks.check_history(self.probe, questions, answers, unsettled))
        return "fail" not in (self.checks["restore"].status, self.checks["history"].status)

    def _check_queries(self, is_settled: bool) -> None:
        if is_settled and not self.probe.asks_singly:
            self._add(*determinism_checks.check_queries(self.probe, self.states, self.plan.draws))
            return
        reason = "the same question has different answers already when it is asked alone"
        if is_settled:
            fault = "untouched" if self.checks["untouched"].status == "fail" else "globals"
            reason = f"the actions of a query disturb each other, see {fault}"
        self._add(skipped("repetition", reason), skipped("order", reason))

    def _check_noise(self, is_settled: bool) -> None:
        self._add(draw_checks.check_noise(self.probe, self.states, self.plan.draws, is_settled))
        if self.checks["noise"].fault or not is_settled:
            return
        run = self.simulator
        if isinstance(run, AuditedRun):
            seeds = [Noise("seed", i).seed for i in range(SEEDS)]
            asked = partial(self._outcome, run)
            if all(len({asked(a, seed) for seed in seeds}) == 1 for a in range(len(run.decisions))):
                self._add(warned("noise", f"no outcome changed over {SEEDS} seeds", "seed ignored"))
        found = draw_checks.check_start_seeds(self.probe)
        if found is not None:
            self._add(found)
        elif not isinstance(run, AuditedRun):
            self._add(determinism_checks.check_seeds(self.probe, self.checks["noise"]))

    def _outcome(self, run: AuditedRun, action: int, seed: int) -> float:
        return float(self.probe.guarded(run.action_label(action), lambda: run.outcome(action, seed)))

    def _check_elsewhere(self, elsewhere: OtherProcesses, is_settled: bool) -> None:
        is_sound = is_settled and not self.probe.pins_globals and self.checks["untouched"].status != "fail"
        reason = "the same question has different answers already here"
        if not is_sound:
            elsewhere.close()
            self._add(skipped("live", reason), skipped("processes", reason))
            return
        self._add(process_checks.check_live(self.probe, self.states, self.cost))
        found = elsewhere.check(self.probe, self.states)
        if found.name != "processes":
            self._add(skipped("processes", "what ran before matters already here"))
        self._add(found)

    def _check_law(self) -> None:
        fault = self.checks["restore"].fault
        if fault in (determinism_checks.CLOCK, HIDDEN):
            self._add(skipped("law", f"outcomes change from query to query by themselves ({fault})"))
            return
        law, self.num_tests = state_checks.check_law(self.probe, self.states, self.plan.samples, self.false_alarm)
        self._add(law)

    def _check_identity(self, is_settled: bool) -> None:
        if self.checks["noise"].fault == "frozen generator":
            self._add(skipped("identity", "a generator in the snapshot is not given new noise"))
        elif is_settled:
            self._add(state_checks.check_identity(self.probe, self.states, self.pool))
        else:
            self._add(skipped("identity", "the same state does not behave alike twice"))

    def _actions_at(self, state: Snapshot, walk: int = 0) -> tuple[Action, ...]:
        """A few actions to ask for, others in other walks."""
        if self.given is not None:
            return tuple(self.given)
        listed = list(self.probe.guarded("available", lambda: self.simulator.available(state)))
        if not listed:
            raise Unanswered("no action is available in a state that is not over")
        if len(listed) <= MOST_ACTIONS:
            return tuple(listed)
        rng = np.random.default_rng([self.seed, 0, walk])
        return tuple(listed[i] for i in sorted(rng.choice(len(listed), MOST_ACTIONS, replace=False)))

    def _chosen(self, at: ProbeState, walk: int, t: int) -> Action:
        noise = Noise("audit policy", self.seed, walk, t)
        return self.probe.guarded(f"the policy at {at.label}", lambda: self.agent(at.state, noise))

    def _collect(self) -> None:
        """Walk from several starts; look closely at some states, and keep the others to see which meet."""
        first = self._walk(0, PLANS[-1].steps)
        self._measure(first)
        walks = [first, *(self._walk(w, self.plan.steps) for w in range(1, self.plan.walks))]
        self.pool = [at for walk in walks for at in walk]
        rng = np.random.default_rng([self.seed, 3])
        # The start first, then states of every walk in turn, each from anywhere in its walk.
        order = [list(rng.permutation(np.arange(1, len(walk)))) for walk in walks]
        chosen: list[ProbeState] = [walks[0][0]]
        while len(chosen) < self.plan.states and any(order):
            for walk, left in zip(walks, order, strict=True):
                if left and len(chosen) < self.plan.states:
                    chosen.append(walk[int(left.pop())])
        most = None if self.cost < PLANS[-1].slower_than else 2
        self.states = [at._replace(actions=at.actions[:most]).with_content() for at in chosen]

    def _measure(self, walk: list[ProbeState]) -> None:
        """Choose the plan by what a query costs where the simulator has to jump between states."""
        times = []
        for turn in self.probe.timed(range(3)):
            for at in (walk[-1], walk[len(walk) // 2], walk[0]):
                begun = time.perf_counter()
                self.probe.ask(at, at.actions, self.probe.noise("cost", turn))
                times.append((time.perf_counter() - begun) / len(at.actions))
        self.cost = float(np.median(times[3:] or times or [1.0]))  # the first may be compiled
        plan = next(plan for plan in reversed(PLANS) if self.cost >= plan.slower_than)
        states = self.num_states or plan.states
        steps = max(plan.steps, -(-states // plan.walks))
        self.plan = plan._replace(states=states, steps=steps, samples=self.num_samples or plan.samples)

    def _walk(self, walk: int, steps: int) -> list[ProbeState]:
        found: list[ProbeState] = []
        state = self.probe.begin(walk)
        for t in range(steps):
            if self.simulator.is_over(state) or (t and time.monotonic() > self.probe.deadline):
                break
            label = f"{START} of walk {walk}" if t == 0 else f"walk {walk}, step {t}"
            at = self.probe.reached(state, label, self._actions_at(state, walk))
            found.append(at)
            action = self._chosen(at, walk, t)
            state = self.probe.ask(at, [action], self.probe.noise("walk", walk, t))[0].state
        return found

    def _find_ends(self) -> None:
        """Walk on until an episode ends, where that takes little time."""
        if self.probe.over or self.cost * LONG_WALK > LONG_WALK_SECONDS:
            return
        at = self.states[0]
        for t in range(LONG_WALK):
            action = self._chosen(at, -1, t)
            found = self.probe.ask(at, [action], self.probe.noise("long walk", t))[0]
            if found.is_over:
                return
            at = at._replace(state=found.state, label=f"step {t + 1} of a long walk")

    def _with_roundings(self, check: Check) -> Check:
        if check.status != "pass":
            return check
        if example := self.probe.roundings.get(check.name):
            return warned(check.name, f"equal up to rounding only ({example})", "rounding")
        if example := self.probe.identities.get(check.name):
            message = f"{example}: states that look and go on alike for {FOLLOWED} steps have different identities"
            return warned(check.name, message, "identity alone")
        return check

    def _in_words(self, check: Check) -> Check:
        """The cause in the words of who wrote a function of a decision and a seed."""
        first = check.fault.split(", ")[0]
        if not isinstance(self.simulator, AuditedRun) or first not in RUN_CAUSES:
            return check
        if first == draw_checks.FROZEN:
            return replace(check, fault="seed ignored", cause=RUN_CAUSES[first])
        where, is_kept, _ = check.cause.partition(" changes ")
        if is_kept:
            return replace(check, cause=f"{where} changes from run to run; {RUN_CAUSES[HIDDEN].partition('; ')[2]}")
        seen, is_named, _ = check.cause.partition("; add it to")
        return replace(check, cause=f"{seen}; {RUN_CAUSES['seed ignored']}" if is_named else RUN_CAUSES[first])
