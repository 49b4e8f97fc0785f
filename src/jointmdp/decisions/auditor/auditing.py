"""`audit`: which states to look at, which checks to make in which order, and how much of each fits into the time."""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from jointmdp.decisions.auditor import determinism_checks, draw_checks, process_checks, state_checks
from jointmdp.decisions.auditor.audit_report import (
    CLAIMS,
    DECISION,
    OUT_OF_TIME,
    POLICY_CLAIM,
    RUN_CLAIMS,
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
from jointmdp.ground.watchdog import OutOfTime, Watchdog, limited
from jointmdp.simulation.simulators.function_simulator import RunSimulator
from jointmdp.simulation.simulators.generators import kept_globals
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.registry import as_simulator
from jointmdp.simulation.simulators.simulator import Action, Agent, Simulator, Snapshot, as_agent
from jointmdp.simulation.watching.probe import (
    FOLLOWED,
    START,
    ObservedOutcome,
    Probe,
    ProbeState,
    Question,
    Unanswered,
)

MOST_ACTIONS = 4  # of a state in one query; other walks look at others, and the start at all of them
WIDE_SHARE = 0.05  # of the time, that asking for one action more after the other may take
RUN_SHARE = 0.03  # of the time, that running all decisions with one more seed may take
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
TRIAL = 20.0  # seconds that an adapter may try out an environment for, however short the audit
LEAST_GRACE, GRACE = 0.5, 0.1  # what a query under way may take longer: seconds, and what part of the time given
HANGS = 20  # times as long as any query that was answered
# What part of the time that is left a check may take; those that come first leave something for the others.
SHARE = 0.4


class AuditedRun(RunSimulator):
    """A function of a decision and a seed; whether its numbers are finite is left to the checks."""

    least_decisions, is_finite = 1, False


@dataclass(eq=False)
class _CountingProbe(Probe):
    """Knows which of the numbered actions were asked since it was last told to forget."""

    seen: set[Action] = field(default_factory=set)

    def ask(
        self, at: ProbeState, actions: Sequence[Action], noise: Noise, *, is_light: bool = False
    ) -> list[ObservedOutcome]:
        """A query."""
        found = super().ask(at, actions, noise, is_light=is_light)
        if self.simulator.action_names is not None:
            self.seen.update(actions)
        return found


def audited(given: Any, decisions: Mapping[str, Any] | Sequence[Any] | None) -> Simulator:
    """The simulator to audit, from what a user has."""
    if decisions is not None and not isinstance(given, Simulator):
        return AuditedRun(given, decisions)
    if isinstance(given, types.FunctionType | types.MethodType):
        raise ModelError(
            f"{given.__name__} is a function; give decisions=[…] to run it with, or make it a FunctionSimulator"
        )
    return as_simulator(given)


def _in_time(make: Callable[[], Simulator], given: Any, seconds: float) -> Simulator:
    """The simulator that an adapter makes, which may try out a few steps: one of them may never return."""
    if isinstance(given, Simulator):
        return make()
    late = f"{type(given).__name__} did not come back from a reset or a step within {max(TRIAL, seconds):g} s, "
    where = None if isinstance(given, str) else "the trial"  # a package may load for long
    with limited(max(TRIAL, seconds), f"{late}when it was tried out; what does it wait for?", where):
        return make()


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
    **unknown: Any,
) -> AuditReport:
    """Check that a simulator gives the actions of a query the same noise, and guess the cause where it does not.

    Args:
        simulator: a `Simulator` or what can be made into one, or a function ``run(decision, seed) -> outcome``
            together with `decisions`.
        policy: by which to walk to the states that are looked at.
        actions: those to ask for; by default all that the time allows at the start, and up to four elsewhere.
        decisions: what to hand to a plain `run` function; every one of them is asked, or named as not asked.
        seed: of the walks and of all noise.
        num_states: states to look at; by default as many as the simulator's speed allows, eight at most.
        num_samples: samples on each side of a statistical test; by default 12 to 100, by speed.
        false_alarm: the probability at most with which a healthy simulator fails the check of the law.
        seconds: the time that the audit may take, to the nearest query. What did not fit is not checked, and says so;
            a query that does not return is ended a little later, and named.
    """
    checks.refuse_keywords(unknown, audit)
    limit = checks.as_positive("seconds", seconds)
    found = _in_time(lambda: audited(simulator, decisions), simulator, limit)
    false_alarm = checks.as_fraction("false_alarm", false_alarm)
    seed = checks.as_count("seed", seed, 0)
    wanted = None if num_states is None else checks.as_count("num_states", num_states, 1, MOST_STATES)
    samples = None if num_samples is None else checks.as_count("num_samples", num_samples, LEAST_SAMPLES)
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
        self.begun, simulator = time.monotonic(), self.simulator
        watchdog = Watchdog(self.seconds + max(LEAST_GRACE, GRACE * self.seconds))
        self.probe = _CountingProbe(simulator, self.seed, actions_at=self._actions_at, watchdog=watchdog)
        given: list[Action] | None = None  # the actions to ask for, where these are not those of each state
        if self.actions is not None:
            if not len(self.actions):
                raise ModelError("actions is empty; name the actions to audit")
            given = [simulator.action_index(action) for action in self.actions]
        elif simulator.action_names is None:
            try:
                given = [simulator.random_action(Noise("audit actions", self.seed, i).rng) for i in range(3)]
            except ModelError as error:
                raise ModelError(f"{error}; give actions=[…] to ask for") from None
        self.given = given
        self.agent: Agent
        if given is not None and isinstance(self.policy, str) and self.policy == "uniform":
            self.agent = lambda state, noise: given[int(noise.uniform * len(given))]
        else:
            self.agent = as_agent(self.policy, simulator)

    def report(self) -> AuditReport:
        reason = "a query was not answered"
        is_run = isinstance(self.simulator, AuditedRun)
        try:
            self._run_decisions() if is_run else self._run()
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
        claims = RUN_CLAIMS if is_run else CLAIMS | POLICY_CLAIM if self.is_policy_given else CLAIMS
        found = [self.checks.get(name, skipped(name, reason)) for name in claims]
        for i, check in enumerate(found):
            if check.status != "pass":
                continue
            if example := self.probe.roundings.get(check.name):
                found[i] = warned(check.name, f"equal up to rounding only ({example})", "rounding")
            elif example := self.probe.identities.get(check.name):
                message = f"{example}: states that look and go on alike for {FOLLOWED} steps have different identities"
                found[i] = warned(check.name, message, "identity alone")
        return AuditReport(
            self.simulator.name,
            tuple(check.for_a_run() if is_run else replace(check, claim=claims[check.name]) for check in found),
            self.false_alarm,
            self.num_tests,
            0 if is_run else len(self.states),
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
        self.probe.seen.clear()
        try:
            yield
        except OutOfTime:
            run = self.simulator
            missing = self._missing(range(len(run.decisions))) if isinstance(run, AuditedRun) else []
            self._add(*(skipped(name, self._too_late).without(missing) for name in names if name not in self.checks))
            if self.probe.watchdog.late is not None:
                raise

    def _missing(self, actions: Iterable[Action]) -> list[str]:
        """The actions that the check under way has not asked for."""
        return [self.simulator.action_label(action) for action in actions if action not in self.probe.seen]

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
        if self.is_policy_given:
            with self._timed("policy", share=0.1):
                self._add(determinism_checks.check_policy(probe, self._choice, self.states, self.agent))
        with self._timed("observation", share=0.1):
            self._add(state_checks.check_observation(probe, self.states))
            probe.is_blind = self.checks["observation"].status == "fail"
        with self._timed("globals", share=0.2):
            self._add(determinism_checks.check_globals(probe, self.states))
            probe.pins_globals = self.checks["globals"].status == "fail"
            probe.asks_singly |= probe.pins_globals
        is_settled = self._check_repeats()
        with self._timed("noise"):
            states = self._with_all_actions(3)
            found = draw_checks.check_noise(probe, states, self.plan.draws, is_settled)
            self._add(found.without([] if self.given is not None else self._missing(self._listed(states[0].state))))
            if is_settled and not found.fault:
                folded = draw_checks.check_folds(probe)
                self._add(folded or determinism_checks.check_seeds(probe, self.checks["noise"]))
        with self._timed("repetition", "order"):
            if is_settled and not probe.asks_singly:
                self._add(*determinism_checks.check_queries(probe, self.states, self.plan.draws))
            else:
                reason = "the same question has different answers already when it is asked alone"
                if is_settled:
                    fault = "untouched" if self.checks["untouched"].status == "fail" else "globals"
                    reason = f"the actions of a query disturb each other, see {fault}"
                self._add(skipped("repetition", reason), skipped("order", reason))
        with self._timed("live"):
            self._check_elsewhere(elsewhere, is_settled)
        with self._timed("law"):
            fault = self.checks["restore"].fault
            if fault in (determinism_checks.CLOCK, HIDDEN):
                self._add(skipped("law", f"outcomes change from query to query by themselves ({fault})"))
            else:
                law, self.num_tests = state_checks.check_law(probe, self.states, self.plan.samples, self.false_alarm)
                self._add(law)
        with self._timed("identity"):
            if self.checks["noise"].fault == "frozen generator":
                self._add(skipped("identity", "a generator in the snapshot is not given new noise"))
            elif is_settled:
                self._add(state_checks.check_identity(probe, self.states, self.pool))
            else:
                self._add(skipped("identity", "the same state does not behave alike twice"))
        # Walk on until an episode ends, where that takes little time.
        at, is_quick = self.states[0], self.cost * LONG_WALK <= LONG_WALK_SECONDS
        for t in range(LONG_WALK if is_quick and not probe.over else 0):
            outcome = probe.ask(at, [self._chosen(at, -1, t)], probe.noise("long walk", t))[0]
            if outcome.is_over:
                break
            at = at._replace(state=outcome.state, label=f"step {t + 1} of a long walk")
        # The 0 that a state pays when it is over is no reward, so those are asked last.
        self._add(state_checks.check_rewards(probe), state_checks.check_finite(probe))
        self._add(state_checks.check_over(probe, self.states))
        self._add(state_checks.check_kept(self.states, untouched, probe.asked))

    def _run_decisions(self) -> None:
        """The checks of a function of a decision and a seed: every decision in each, with as many seeds as time allows.

        What is drawn is looked at early, since it takes one run where others take three.
        """
        run, probe = self.simulator, self.probe
        assert isinstance(run, AuditedRun)
        decisions = tuple(self.given or range(len(run.decisions)))
        at = probe.reached(probe.begin(0), DECISION, decisions).with_content()
        self.states = [at]
        elsewhere = OtherProcesses(run, self.seed, decisions)
        times = []
        for action in decisions:
            begun = time.perf_counter()
            probe.ask(at, [action], probe.noise("cost"))
            times.append(time.perf_counter() - begun)
        self.cost = float(np.sum(times))
        draws = int(np.clip(RUN_SHARE * self.seconds / max(self.cost, 1e-9), 1, PLANS[0].draws))
        self.plan = self.plan._replace(draws=draws)
        steps: Sequence[Any] = []
        with self._timed("noise"):
            steps = draw_checks.recorded_runs(probe, at)
        with self._timed("globals", share=0.3):
            self._add(determinism_checks.check_globals(probe, self.states))
            probe.pins_globals = self.checks["globals"].status == "fail"
        is_settled = self._check_repeats()
        if is_settled and (found := draw_checks.check_files(probe, steps)):
            self._add(found)
        if "noise" not in self.checks:
            with self._timed("noise"):
                self._add(draw_checks.check_runs(probe, at, steps, is_settled))
        with self._timed("processes"):
            self._check_elsewhere(elsewhere, is_settled)
        with self._timed("pairing", share=0.8):
            self._add(draw_checks.check_pairing(probe, at, is_settled))
        self._add(state_checks.check_finite(probe))

    def _check_repeats(self) -> bool:
        """Whether the same question has the same answer, whatever ran before."""
        states = self._with_all_actions(3 * self.plan.draws)
        questions = [Question(s, a, d) for d in range(self.plan.draws) for s in states for a in s.actions]
        with self._timed("restore", "history"):
            restore, answers, unsettled = determinism_checks.check_restore(self.probe, questions)
            self._add(restore)
            if restore.status == "fail":
                self._add(skipped("history", "restoring fails already when nothing is run in between"))
            else:
                self._add(determinism_checks.check_history(self.probe, questions, answers, unsettled))
        return "fail" not in (self.checks["restore"].status, self.checks["history"].status)

    def _with_all_actions(self, count: int) -> list[ProbeState]:
        """The states, and the first with as many of its actions as can each be asked `count` times."""
        first, *others = self.states
        if self.given is not None or isinstance(self.simulator, AuditedRun):
            return self.states
        more = [action for action in self._listed(first.state) if action not in first.actions]
        most = int(WIDE_SHARE * self.seconds / max(count * self.cost, 1e-9))
        return [first._replace(actions=(*first.actions, *more[:most])), *others]

    def _check_elsewhere(self, elsewhere: OtherProcesses, is_settled: bool) -> None:
        is_changed = "untouched" in self.checks and self.checks["untouched"].status == "fail"
        reason = "the same question has different answers already here"
        if not is_settled or self.probe.pins_globals or is_changed:
            elsewhere.close()
            self._add(skipped("live", reason), skipped("processes", reason))
            return
        if not isinstance(self.simulator, AuditedRun):
            self._add(process_checks.check_live(self.probe, self.states, self.cost))
        found = elsewhere.check(self.probe, self.states)
        if found.name != "processes":
            self._add(skipped("processes", "what ran before matters already here"))
        self._add(found)

    def _actions_at(self, state: Snapshot, walk: int = 0) -> tuple[Action, ...]:
        """A few actions to ask for, others in other walks."""
        if self.given is not None:
            return tuple(self.given)
        listed = self._listed(state)
        if not listed:
            raise Unanswered("no action is available in a state that is not over")
        if len(listed) <= MOST_ACTIONS:
            return tuple(listed)
        rng = np.random.default_rng([self.seed, 0, walk])
        return tuple(listed[i] for i in sorted(rng.choice(len(listed), MOST_ACTIONS, replace=False)))

    def _listed(self, state: Snapshot) -> list[Action]:
        """All actions that can be taken in a state."""
        return list(self.probe.guarded("available", lambda: self.simulator.available(state)))

    def _chosen(self, at: ProbeState, walk: int, t: int) -> Action:
        return self._choice(at, Noise("audit policy", self.seed, walk, t))

    def _choice(self, at: ProbeState, noise: Noise) -> Action:
        return self.probe.guarded(f"the policy at {at.label}", lambda: self.agent(at.state, noise))

    @property
    def is_policy_given(self) -> bool:
        """Whether there is a policy of the user's own to check."""
        return not isinstance(self.policy, str | int)

    def _collect(self) -> None:
        """Walk from several starts; look closely at some states, and keep the others to see which meet.

        How many are looked at follows from what a query costs.
        """
        first, times = self._walk(0, PLANS[-1].steps), []
        for turn in self.probe.timed(range(3)):  # what a query costs where the simulator has to jump between states
            for at in (first[-1], first[len(first) // 2], first[0]):
                begun = time.perf_counter()
                self.probe.ask(at, at.actions, self.probe.noise("cost", turn))
                times.append((time.perf_counter() - begun) / len(at.actions))
        self.cost = float(np.median(times[3:] or times or [1.0]))  # the first may be compiled
        plan = next(plan for plan in reversed(PLANS) if self.cost >= plan.slower_than)
        count = self.num_states or plan.states
        steps = max(plan.steps, -(-count // plan.walks))
        self.plan = plan._replace(states=count, steps=steps, samples=self.num_samples or plan.samples)
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
