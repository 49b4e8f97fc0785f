"""Checks that the same question has the same answer: asked again, after others, twice in a query, in another order.

Where it does not, further questions tell the cause: hidden generators, hidden state, the clock, or the place of an
action in its query.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from jointmdp.decisions.auditor.audit_report import CAUSES, Check, failed, skipped, warned
from jointmdp.decisions.auditor.draw_checks import NO_NOISE
from jointmdp.simulation.simulators.fingerprints import safe_fingerprint
from jointmdp.simulation.simulators.generators import global_states, seed_globals
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Snapshot
from jointmdp.simulation.watching import recorded_draws
from jointmdp.simulation.watching.clocks import DAY, stopped_clock
from jointmdp.simulation.watching.hidden_state import (
    changed,
    hidden_generators,
    kept_values,
    opened_files,
    plain_parts,
)
from jointmdp.simulation.watching.other_processes import LEARNS, choices_learned, others_choose, watched_calls
from jointmdp.simulation.watching.probe import (
    START,
    Difference,
    ObservedOutcome,
    Probe,
    ProbeState,
    Question,
    clear_difference,
    difference,
)
from jointmdp.simulation.watching.stream_checks import fixed_at_start, made_otherwise

PREPARATIONS = 4  # runs that lead a simulator with sticky actions to a known place
OTHER_SEEDS = 4  # of a global generator, tried where it moves
CERTAIN = 4  # times that each of two days must give its own answer again
HIDDEN, CLOCK, NOT_RESTORED = "hidden state not restored", "wall clock", "generator not restored"
MOVED = 6  # questions that are asked at another time of day
SEARCHED = 3  # questions around which the simulator is searched for generators that move
EXAMINED = 8  # questions with changing answers that are looked into
POLICY_DRAWS = 3  # of noise, with which a policy is asked in each state
ELSEWHERE = 30.0  # seconds that new processes may take
ROLLS = 3  # steps, each of which dice change
STARTS, ONWARD = 6, 8  # starts under other seeds, and steps from each
EXAMINED_PLACES = 16  # places in a query at which a difference is looked into

Doubts = list[tuple[Question, Difference]]


def check_globals(probe: Probe, states: Sequence[ProbeState]) -> Check:
    """Do the generators of the whole program move, and does it matter where they stand?"""
    moved, telling, reseeded = dict[str, str](), dict[str, str](), set[str]()
    asks: list[tuple[object, Callable[[], ObservedOutcome]]] = [(START, lambda: probe.begun(probe.begin(0)))]
    questions = [Question(at, action, i) for i, at in enumerate(states) for action in at.actions]
    asks += [(probe.where(question.at, question.action), partial(probe.answer, question)) for question in questions]
    for where, ask in probe.timed(asks):
        seed_globals(1)
        before = global_states()
        one = ask()
        after = global_states()
        moving = changed(before, after)
        if moving:
            seed_globals(1)
            if probe.compare("globals", one, ask(), where) is not None:  # it changes by itself, see restore
                continue
        for name in moving:
            for seed in range(2, 2 + OTHER_SEEDS):
                seed_globals(1)
                seed_globals(seed, name)
                found = probe.compare("globals", one, ask(), where)
                if found is not None:  # also where it was seeded, but after a draw
                    telling.setdefault(name, f"{where}: {found.text}")
                if global_states()[name] == after[name]:
                    reseeded.add(name)
                    break
                moved.setdefault(name, str(where))
    movers = telling or moved
    names, faults = " and ".join(movers), ", ".join(f"global {name.partition(' in ')[0]}" for name in movers)
    if telling:
        shown = next(iter(telling.values()))
        message = f"seeding {names} differently gives another outcome under the same noise ({shown})"
        plural = "s" * (len(telling) > 1)
        cause = f"a step draws from the global generator{plural} {names}; draw from the noise that it is given"
        return failed("globals", message, faults, f"{cause} (noise.rng, or np_random in a Gymnasium environment)")
    if moved:
        where = next(iter(moved.values()))
        message = f"the global generator {names} moves on in {where}, though no outcome was seen to depend on it"
        cause = "draw from the noise instead; if it decides something rare, noise is not shared there"
        return warned("globals", message, faults, cause)
    if (by_the_clock := _by_the_clock(probe, questions)) is not None:
        return by_the_clock
    probe.in_time()
    message = "no generator of the whole program moves"
    if reseeded:
        names, verb = " and ".join(sorted(reseeded)), "are" if len(reseeded) > 1 else "is"
        message = f"{names} {verb} seeded from the noise in each step, so what was there before is no matter"
    return Check("globals", "pass", message)


def _by_the_clock(probe: Probe, questions: Sequence[Question]) -> Check | None:
    """Does another day give another outcome? What changes from one question to the next is for `check_restore`."""
    for question in probe.timed(questions[:: max(1, len(questions) // MOVED)]):
        where = probe.where(question.at, question.action)
        one = probe.answer(question)
        other = _on_another_day(probe, question)
        found = probe.compare("globals", one, other, where)
        if found is None:
            continue
        # Whatever moves from question to question is taken for the clock by chance alone.
        turns = [(one, Probe.answer), (other, _on_another_day)] * CERTAIN
        if all(probe.compare("globals", seen, ask(probe, question), where) is None for seen, ask in turns):
            message = f"on another day the same question has another answer ({where}: {found.text})"
            return failed("globals", message, CLOCK, CAUSES[CLOCK].partition(": ")[2])
    return None


def _on_another_day(probe: Probe, question: Question) -> ObservedOutcome:
    with stopped_clock() as clock:
        clock.ahead = DAY
        return probe.answer(question)


def check_policy(
    probe: Probe,
    choose: Callable[[ProbeState, Noise], Action],
    states: Sequence[ProbeState],
    agent: Any,
) -> Check:
    """The policy in some states, and again in scrambled order: does it choose the same from the same noise?"""
    # Where they lead, since a policy that remembers may know all states that it has walked through.
    after = [probe.ask(at, at.actions[:1], probe.noise("to a new state", at.label))[0] for at in states]
    fresh = [ProbeState(x.state, f"after {at.label}") for x, at in zip(after, states, strict=True) if not x.is_over]
    asks, moved = list(itertools.product(range(POLICY_DRAWS), [*states, *fresh])), set[str]()
    chosen: dict[int, object] = {}
    orders = [np.arange(len(asks)), *(np.random.default_rng([probe.seed, i]).permutation(len(asks)) for i in (8, 9))]
    codes: set[CodeType] = set()
    for i in probe.timed(itertools.chain.from_iterable(orders)):
        draw, at = asks[i]
        before = global_states()
        with watched_calls(codes) if int(i) not in chosen else nullcontext():
            action = choose(at, probe.noise("the policy", at.label, draw))
        moved.update(changed(before, global_states()))
        if safe_fingerprint(chosen.setdefault(int(i), action)) != safe_fingerprint(action):
            message = f"{at.label}: {chosen[int(i)]} and then {action}, for the same observation and noise"
            cause = "make it f(observation, rng), and draw from that rng alone; a stochastic predict takes "
            cause += "deterministic=True; what it remembers from call to call is not given back between branches"
            if moved:
                cause = f"it draws from {' and '.join(sorted(moved))}; {cause}"
            return failed("policy", message, "policy not reproducible", cause)
    probe.in_time()
    noises = [(at.state, Noise("audit policy", probe.seed, i)) for i, at in enumerate([*states, *fresh])]
    if calls := probe.guarded("the policy", lambda: choices_learned(agent, noises)):
        message = f"after {calls:,} more calls another action is chosen for the same observation and noise"
        return failed("policy", message, "policy not reproducible", LEARNS)
    patience = max(1.0, min(ELSEWHERE, probe.watchdog.left))
    others = probe.guarded("the policy", lambda: others_choose(agent, noises, codes, patience))
    if isinstance(others, str):
        return Check("policy", "pass", f"{len(asks)} choices were made again; not in another process: {others}")
    if others.text:
        message = "a new process chooses another action for the same observation and noise"
        return failed("policy", message, "policy not reproducible", others.cause)
    return Check("policy", "pass", f"{len(asks)} choices were made again")


def _moving(probe: Probe, question: Question) -> tuple[list[str], ObservedOutcome]:
    """The generators that the simulator keeps and that a question moves, and its answer."""
    before = hidden_generators(probe.simulator, "simulator", False)
    answer = probe.answer(question)
    return changed(before, hidden_generators(probe.simulator, "simulator", False)) if before else [], answer


def check_restore(probe: Probe, questions: Sequence[Question]) -> tuple[Check, list[ObservedOutcome], Doubts]:
    """Each question three times in a row; the first answer may still show what ran before it.

    Returns the settled answers too, and the questions whose first answer was another.
    """
    answers, faulty, unsettled, moved = list[ObservedOutcome](), Doubts(), Doubts(), set[str]()
    for draw in range(3):
        one, other = (probe.begun(probe.begin(draw)) for _ in range(2))
        if (found := probe.compare("restore", one, other, START)) is not None:
            message = f"two starts from the same noise are not the same: {found.text}"
            return failed("restore", message, "start not reproducible"), answers, unsettled
    for i, question in probe.timed(enumerate(questions)):
        first, second = probe.answer(question), probe.answer(question)
        moving, third = _moving(probe, question) if i < SEARCHED else ([], probe.answer(question))
        moved.update(moving)
        answers.append(second)
        where = probe.where(question.at, question.action)
        if (found := probe.compare("restore", second, third, where)) is not None:
            faulty.append((question, found))
        elif (found := probe.compare("restore", first, second, where)) is not None:
            unsettled.append((question, found))
    if faulty:
        question, found = faulty[0]
        fault, cause = _irreproducible(probe, [question for question, _ in faulty[:EXAMINED]], moved)
        share, where = f"{len(faulty)} of {len(questions)} questions", probe.where(question.at, question.action)
        message = f"{share} had two answers under the same noise; {where}: {found.text}"
        return failed("restore", message, fault, cause), answers, unsettled
    if moved:
        message = (
            f"{' and '.join(sorted(moved))}: a random generator that moves on when the same question is asked again"
        )
        cause = "no outcome was seen to depend on it; if it decides something rare, draw that from the noise instead"
        return warned("restore", message, NOT_RESTORED, cause), answers, unsettled
    probe.in_time()
    message = f"{len(questions)} questions had the same answer again, bit for bit"
    return Check("restore", "pass", message), answers, unsettled


def _irreproducible(probe: Probe, questions: Sequence[Question], moved: set[str]) -> tuple[str, str]:
    """What makes two answers in a row differ: a generator, the clock, or something that is counted."""
    advice = "add it to what a snapshot holds, name it in streams=, or draw from the noise"
    for question in questions:
        moved.update(_moving(probe, question)[0])
    if moved:
        verbs = ("moves on", "is") if len(moved) == 1 else ("move on", "are")
        names = " and ".join(sorted(moved))
        return NOT_RESTORED, f"{names} {verbs[0]} from query to query and {verbs[1]} not restored; {advice}"
    made = ""  # a generator that is made anew in a step, from another seed when the same question is asked again
    for question in questions:
        logs = []
        for _ in range(2):
            with recorded_draws.recorded() as log:
                probe.answer(question)
            logs.append(log)
        if made := made_otherwise(*logs):
            break
    if not all(_settles(probe, question) for question in questions):
        with stopped_clock() as clock:
            if all(_settles(probe, question, clock.rewind) for question in questions):
                return CLOCK, ""
    if made:
        return NOT_RESTORED, f"{made}; {advice}"
    for question in questions:
        probe.answer(question)
        if where := kept_where(probe, partial(probe.answer, question)):
            return HIDDEN, f"{where} changes from query to query and is not restored; {advice}"
    text = "something that is not in the snapshot changes from query to query, and no generator was seen to move"
    return HIDDEN, f"{text} (a counter, a cache, a source in another language); {advice}"


def kept_where(probe: Probe, ask: Callable[[], object]) -> str:
    """Where a question leaves something behind that its snapshots do not hold; empty where nothing is seen."""
    before = kept_values(probe.simulator, "simulator")
    with opened_files() as files:
        ask()
    kept = changed(before, kept_values(probe.simulator, "simulator"))
    return next(iter([*kept, *(f"the file {file.name}" for file in files if os.path.exists(file.name))]), "")


def _settles(probe: Probe, question: Question, prepare: Callable[[], None] = lambda: None) -> bool:
    answers = []
    for _ in range(4):
        prepare()
        answers.append(probe.answer(question))
    return all(probe.compare("restore", answers[1], answer, "") is None for answer in answers[2:])


def check_history(
    probe: Probe, questions: Sequence[Question], answers: Sequence[ObservedOutcome], unsettled: Doubts
) -> Check:
    """The same questions again in a scrambled order, with queries of several actions in between."""
    faulty = list(unsettled)
    rng = np.random.default_rng([probe.seed, 1])
    count = 0
    for round_number in range(2):
        for i in probe.timed(rng.permutation(len(answers))):
            question = questions[i]
            found = probe.compare("history", answers[int(i)], probe.answer(question), question.at.label)
            count += 1
            if found is not None:
                faulty.append((question, found))
            if count % 4 == 0:
                other = questions[int(rng.integers(len(questions)))].at
                probe.ask(other, other.actions, probe.noise("in between", round_number, count))
    if not faulty:
        probe.in_time()
        return Check("history", "pass", f"{count} questions in scrambled order had their old answers")
    question, found = faulty[0]
    fault = _remembered(probe, [question for question, _ in faulty[:EXAMINED]], questions)
    place = probe.where(question.at, question.action)
    message = f"what ran before shows in {len(faulty)} answers under the same noise; {place}: {found.text}"
    return failed("history", message, fault, remembering(probe, fault, [each.at for each in questions]))


def remembering(probe: Probe, fault: str, states: Sequence[ProbeState]) -> str:
    """The cause of such a fault, with where it is remembered if that can be seen."""
    asks = [(at, action) for at in states for action in at.actions]
    for i, (at, action) in enumerate(asks[:EXAMINED]):
        if where := kept_where(probe, partial(probe.ask, at, [action], probe.noise("where", i))):
            return f"{where} changes when something is asked; {CAUSES[fault]}"
    return ""


def _remembered(probe: Probe, faulty: Sequence[Question], questions: Sequence[Question]) -> str:
    """What is remembered: the state before, or only the action before."""
    states = list({question.at.label: question.at for question in questions}.values())
    actions = states[0].actions
    alike = [at for at in states if safe_fingerprint(at.actions) == safe_fingerprint(actions)][:3]
    by_action = False
    for question in faulty:
        after = {(i, j): _after(probe, s, a, question) for i, s in enumerate(alike) for j, a in enumerate(actions)}
        for i, j in after:
            same_action, same_state = after[0, j], after[i, 0]
            if probe.compare("history", same_action, after[i, j], "") is not None:
                return "state not restored in full"
            by_action |= probe.compare("history", same_state, after[i, j], "") is not None
    return "dropped previous action" if by_action else "hidden state"


def _after(probe: Probe, at: ProbeState, action: Action, question: Question) -> ObservedOutcome:
    """The answer to a question after another action was run elsewhere a few times."""
    for i in range(PREPARATIONS):
        # The noise is the question's own, so that no single draw spoils all preparations.
        probe.ask(at, [action], probe.noise("preparation", question.at.label, question.draw, i))
    return probe.answer(question)


KEY_CURES = {
    "noise not shared": "split or fold the key by what is drawn, never by the action",
    "one stream for two sources": "split the key, one part for each source",
    "frozen generator": "draw from the key that step is given; a table of fixed numbers is drawn once, outside of step",
}


def check_seeds(probe: Probe, noise: Check) -> Check:
    """Do starts heed their seeds? And where no step took any noise: does another seed go another way?

    Takes what is known of the noise, and gives it back with what other seeds have shown.
    """
    # What the program of a step in JAX shows of its keys: nothing is sampled here.
    for fault, text in getattr(probe.simulator, "key_faults", ()):
        if fault == "noise not shared":
            return failed("noise", text, fault, KEY_CURES[fault])
        if noise.status in ("pass", "skip"):
            noise = warned("noise", text, fault, KEY_CURES[fault])
            break
    if noise.status == "skip" and getattr(probe.simulator, "calls_back", None) is False:
        noise = Check("noise", "pass", "no draw of a step takes a key that depends on the action, as its program shows")
    if noise.status == "fail":
        return noise
    states, logs = [], []
    with recorded_draws.twins_installed():
        for i in probe.timed(range(STARTS)):
            with recorded_draws.recorded() as log:
                states.append(probe.begin(i))
            logs.append(log)
    probe.in_time()
    starts = [probe.begun(state) for state in states]
    alike = [i for i, start in enumerate(starts) if i and clear_difference(starts[0], start) is None]
    is_one = len(alike) == STARTS - 1
    what = str(getattr(probe.simulator, "frozen_start", "")) or fixed_at_start(logs)
    if is_one and what:
        message = f"{STARTS} starts under other seeds are one and the same: {what}"
        return warned("noise", message, "seed ignored at the start")
    if noise.message != NO_NOISE:
        return replace(noise, message=f"{noise.message}; there is one start") if is_one else noise
    walks = [_onward(probe, states[i], states[0]) for i in (0, *alike)]
    is_parted = any(clear_difference(x, y) is not None for walk in walks for x, y in zip(walk, walks[0], strict=False))
    opaque = str(getattr(probe.simulator, "opaque", ""))
    if opaque and (is_parted or not alike):
        seen = f"no noise was seen in {probe.asked:,} queries, but {opaque} does not show what it holds"
        message = f"{seen}: it may have dice of its own that a reset seeds, and one future for each seed"
        cause = "if nothing in it is random, all is well; otherwise let each step seed it from the noise (np_random)"
        return warned("noise", message, "noise outside the snapshot", cause)
    if is_parted and (where := _rolling(probe, states, alike)):
        message = f"{NO_NOISE}, but starts under other seeds that look alike go different ways, by {where}, which each "
        cause = (
            "if that is dealt at the start and hidden (cards), all is well; if it is dice that only the start seeds, "
        )
        cause += "each state has one future: let each step draw from the noise"
        return warned("noise", f"{message}step changes", "noise outside the snapshot", cause)
    tried = f"and the same state went the same way in {probe.asked:,} queries; other seeds begin elsewhere"
    if is_parted:
        tried = "starts under other seeds that look alike go different ways: part of what a start draws is not shown"
    elif is_one:
        tried = f"and {STARTS} starts under other seeds are one, and went the same way for {len(walks[0])} steps"
    return replace(noise, message=f"{NO_NOISE}{';' if is_parted else ','} {tried}")


def _rolling(probe: Probe, states: Sequence[Snapshot], alike: Sequence[int]) -> str:
    """What starts that look alike hold otherwise and each step changes, as dice do; empty where there is none."""
    parts = [plain_parts(states[i]) for i in (0, *alike)]
    found = {path for other in parts[1:] for path in changed(parts[0], other)}
    state = states[0]
    for t in range(ROLLS):
        before, at = plain_parts(state), ProbeState(state, "a start")
        outcome = probe.ask(at, probe.actions_at(state)[:1], probe.noise("rolling", t))[0]
        state, found = outcome.state, found & set(changed(before, plain_parts(outcome.state)))
        if outcome.is_over:
            break
    return min(found, default="")


def _onward(probe: Probe, state: Snapshot, first: Snapshot) -> list[ObservedOutcome]:
    """Steps from a start, with the same actions and noise from each."""
    actions, found = probe.actions_at(first), []
    for t in range(ONWARD):
        action = actions[t % len(actions)]
        is_listed = probe.simulator.action_names is not None
        if probe.simulator.is_over(state) or (is_listed and action not in probe.simulator.available(state)):
            break
        found.append(probe.ask(ProbeState(state, f"step {t} from a start"), [action], probe.noise("onward", t))[0])
        state = found[-1].state
    return found


class _Doubt(NamedTuple):
    """An action whose outcome differed between two queries under the same noise."""

    at: ProbeState
    place: int  # of the action among those of the state
    draw: int
    text: str


def check_queries(probe: Probe, states: Sequence[ProbeState], draws: int) -> tuple[Check, Check]:
    """Repetition and order: every action twice in a query, and all actions in several orders and alone."""
    doubts: dict[str, list[_Doubt]] = {"repetition": [], "order": []}
    rounded = ""

    def hold(check: str, doubt: _Doubt, one: ObservedOutcome, other: ObservedOutcome) -> None:
        place = probe.where(doubt.at, doubt.at.actions[doubt.place])
        if (found := probe.compare(check, one, other, place)) is not None:
            doubts[check].append(doubt._replace(text=f"{place}{doubt.text}: {found.text}"))

    for at, draw in probe.timed(itertools.product(states, range(draws))):
        plain = list(range(len(at.actions)))
        for i in plain:
            # In a query as large as those of all actions: compiled simulators compile each size.
            twice = [i, i, *(j for j in plain if j != i)][: max(2, len(plain))]
            one, other, *_ = _asked(probe, at, twice, draw)
            hold("repetition", _Doubt(at, i, draw, ""), one, other)
        together = _asked(probe, at, plain, draw)
        others = [plain[::-1]] * (len(plain) > 1) + [plain[1:] + plain[:1]] * (len(plain) > 2)
        for order in others:
            for k, (i, other) in enumerate(zip(order, _asked(probe, at, order, draw), strict=True)):
                text = f", at place {i + 1} and at place {k + 1} of a query"
                hold("order", _Doubt(at, i, draw, text), together[i], other)
        for i in plain:
            alone = _asked(probe, at, [i], draw)[0]
            found = difference(alone, together[i], probe.is_blind)
            # Compiled code of another size may round otherwise; that concerns nobody who asks in one size.
            if found is not None and found.is_rounding:
                place = probe.where(at, at.actions[i])
                rounded = rounded or f"; {place}: asked alone the last digits differ from a query of {len(together)}"
            else:
                hold("order", _Doubt(at, i, draw, ", alone and together with other actions"), alone, together[i])
    repeated, reordered = doubts.values()
    if not repeated and not reordered:
        probe.in_time()
    count = sum(len(at.actions) for at in states) * draws
    repetition = Check("repetition", "pass", f"{count} actions asked twice in one query gave the same twice")
    if repeated:
        message = f"one action has two outcomes in one query; {repeated[0].text}"
        repetition = failed("repetition", message, _diagnosed(probe, repeated))
    if max(len(at.actions) for at in states) < 2:
        return repetition, skipped("order", "there is only one action")
    if reordered:
        return repetition, failed("order", reordered[0].text, _diagnosed(probe, reordered))
    message = f"outcomes were the same in every order of the query, in {len(states)} states{rounded}"
    return repetition, Check("order", "pass", message)


def _asked(probe: Probe, at: ProbeState, order: Sequence[int], draw: int) -> list[ObservedOutcome]:
    return probe.ask(at, [at.actions[i] for i in order], probe.noise("query", at.label, draw))


def _diagnosed(probe: Probe, doubts: Sequence[_Doubt]) -> str:
    """Hold the place in the query and vary what comes before it: a leak. Only the place matters: a shock tied to it."""
    by_place = False
    for at, i, draw, _ in doubts[:EXAMINED_PLACES]:
        others = range(len(at.actions))
        seconds = [_asked(probe, at, [j, i], draw)[1] for j in others]
        thirds = [_asked(probe, at, [j, k, i], draw)[2] for j, k in ((0, len(others) - 1), (len(others) - 1, 0))]
        for outcomes in (seconds, thirds):
            if any(probe.compare("order", outcomes[0], other, "") is not None for other in outcomes[1:]):
                return "order-dependent query"
        firsts = [_asked(probe, at, [i, j], draw)[0] for j in others]
        by_place |= any(probe.compare("order", firsts[i], other, "") is not None for other in (seconds[i], thirds[0]))
    return "shock tied to the query position" if by_place else "outcome depends on the company"
