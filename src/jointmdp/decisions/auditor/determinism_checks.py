"""Checks that the same question has the same answer: hidden generators, hidden state, the clock."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from jointmdp.decisions.auditor import find_generators, recorded_draws
from jointmdp.decisions.auditor.audit_report import Check, failed, warned
from jointmdp.decisions.auditor.observed_outcomes import Difference, ObservedOutcome, safe_fingerprint
from jointmdp.decisions.auditor.probe import Probe, Spot
from jointmdp.simulation.simulators.global_generators import global_states, seed_globals
from jointmdp.simulation.simulators.simulator import Action, Outcome

PREPARATIONS = 4  # runs that lead a simulator with sticky actions to a known place
OTHER_SEEDS = 4  # of a global generator, tried where it moves
HIDDEN, CLOCK, NOT_RESTORED = "hidden state not restored", "wall clock", "generator not restored"
SEARCHED = 3  # questions around which the simulator is searched for generators that move
EXAMINED = 8  # questions with changing answers that are looked into


class Question(NamedTuple):
    """One action in one state under one draw of the noise."""

    spot: Spot
    action: Action
    draw: int


Doubts = list[tuple[Question, Difference]]


def put(probe: Probe, question: Question) -> ObservedOutcome:
    """The answer to a question."""
    noise = probe.noise("question", question.spot.label, question.draw)
    return probe.ask(question.spot, [question.action], noise)[0]


def _start(probe: Probe, draw: int) -> ObservedOutcome:
    """A starting state as if it were an outcome."""
    return probe.look(Outcome(np.nan, probe.begin(draw)), "the start", is_start=True)


def check_globals(probe: Probe, spots: Sequence[Spot]) -> Check:
    """Do the generators of the whole program move, and does it matter where they stand?"""
    moved: dict[str, str] = {}
    reseeded: set[str] = set()
    telling: dict[str, str] = {}
    asks: list[tuple[object, Callable[[], ObservedOutcome]]] = [("the start", partial(_start, probe, 0))]
    questions = [Question(spot, action, i) for i, spot in enumerate(spots) for action in spot.actions]
    asks += [(probe.where(question.spot, question.action), partial(put, probe, question)) for question in questions]
    for where, ask in probe.timed(asks):
        seed_globals(1)
        before = global_states()
        one = ask()
        after = global_states()
        for name in find_generators.changed(before, after):
            for seed in range(2, 2 + OTHER_SEEDS):
                seed_globals(1)
                seed_globals(seed, name)
                other = ask()
                found = probe.compare("globals", one, other, where)
                if found is not None:  # also where it was seeded, but after a draw
                    telling.setdefault(name, f"{where}: {found.text}")
                if global_states()[name] == after[name]:
                    reseeded.add(name)
                    break
                moved.setdefault(name, str(where))
    if telling:
        names = " and ".join(telling)
        message = (
            f"seeding {names} differently gives another outcome under the same noise ({next(iter(telling.values()))})"
        )
        cause = (
            f"a step draws from the global generator{'s' * (len(telling) > 1)} {names}; draw from the noise that it is "
            "given (noise.rng, or np_random in a Gymnasium environment)"
        )
        return failed("globals", message, ", ".join(f"global {name}" for name in telling), cause)
    if moved:
        names, where = " and ".join(moved), next(iter(moved.values()))
        message = f"the global generator {names} moves on in {where}, though no outcome was seen to depend on it"
        cause = "draw from the noise instead; if it decides something rare, noise is not shared there"
        return warned("globals", message, ", ".join(f"global {name}" for name in moved), cause)
    probe.in_time()
    if reseeded:
        names, verb = " and ".join(sorted(reseeded)), "are" if len(reseeded) > 1 else "is"
        message = f"{names} {verb} seeded from the noise in each step, so what was there before is no matter"
        return Check("globals", "pass", message)
    return Check("globals", "pass", "no generator of the whole program moves")


def check_restore(probe: Probe, questions: Sequence[Question]) -> tuple[Check, list[ObservedOutcome], Doubts]:
    """Each question three times in a row; the first answer may still show what ran before it.

    Returns the settled answers too, and the questions whose first answer was another.
    """
    answers: list[ObservedOutcome] = []
    faulty: Doubts = []
    unsettled: Doubts = []
    moved: set[str] = set()
    for draw in range(3):
        begun = probe.compare("restore", _start(probe, draw), _start(probe, draw), "the start")
        if begun is not None:
            message = f"two starts from the same noise are not the same: {begun.text}"
            return failed("restore", message, "start not reproducible"), answers, unsettled
    for i, question in probe.timed(enumerate(questions)):
        first, second = put(probe, question), put(probe, question)
        standing = find_generators.generators(probe.simulator, "simulator", False) if i < SEARCHED else {}
        third = put(probe, question)
        if standing:
            now = find_generators.generators(probe.simulator, "simulator", False)
            moved.update(find_generators.changed(standing, now))
        answers.append(second)
        where = probe.where(question.spot, question.action)
        found = probe.compare("restore", second, third, where)
        if found is not None:
            faulty.append((question, found))
        elif (found := probe.compare("restore", first, second, where)) is not None:
            unsettled.append((question, found))
    if faulty:
        question, found = faulty[0]
        fault, cause = _irreproducible(probe, [question for question, _ in faulty[:EXAMINED]], moved)
        share = f"{len(faulty)} of {len(questions)} questions"
        where = probe.where(question.spot, question.action)
        message = f"{share} had two answers under the same noise; {where}: {found.text}"
        return failed("restore", message, fault, cause), answers, unsettled
    if moved:
        names = " and ".join(sorted(moved))
        message = f"{names}: a random generator that moves on when the same question is asked again"
        cause = "no outcome was seen to depend on it; if it decides something rare, draw that from the noise instead"
        return warned("restore", message, NOT_RESTORED, cause), answers, unsettled
    probe.in_time()
    message = f"{len(questions)} questions had the same answer again, bit for bit"
    return Check("restore", "pass", message), answers, unsettled


def _irreproducible(probe: Probe, questions: Sequence[Question], moved: set[str]) -> tuple[str, str]:
    """What makes two answers in a row differ: a generator, the clock, or something that is counted."""
    advice = "add it to what a snapshot holds, name it in streams=, or draw from the noise"
    for question in questions:
        before = find_generators.generators(probe.simulator, "simulator", False)
        put(probe, question)
        after = find_generators.generators(probe.simulator, "simulator", False)
        moved.update(find_generators.changed(before, after))
    if moved:
        verbs = ("moves on", "is") if len(moved) == 1 else ("move on", "are")
        names = " and ".join(sorted(moved))
        return NOT_RESTORED, f"{names} {verbs[0]} from query to query and {verbs[1]} not restored; {advice}"
    made = _made_otherwise(probe, questions)
    if not all(_settles(probe, question) for question in questions):
        with find_generators.stopped_clock():
            if all(_settles(probe, question) for question in questions):
                return CLOCK, ""
    if made:
        return NOT_RESTORED, f"{made}; {advice}"
    for question in questions:
        put(probe, question)
        before = find_generators.attributes(probe.simulator, "simulator")
        put(probe, question)
        kept = find_generators.changed(before, find_generators.attributes(probe.simulator, "simulator"))
        if kept:
            return HIDDEN, f"{kept[0]} changes from query to query and is not restored; {advice}"
    text = "something that is not in the snapshot changes from query to query, and no generator was seen to move"
    return HIDDEN, f"{text} (a counter, a cache, a source in another language); {advice}"


def _made_otherwise(probe: Probe, questions: Sequence[Question]) -> str:
    """A generator that is made anew in a step, from another seed when the same question is asked again."""
    places = recorded_draws.places()
    for question in questions:
        logs = [recorded_draws.DrawLog() for _ in range(2)]
        for log in logs:
            with recorded_draws.recorded(log, places):
                put(probe, question)
        drawn = [log.drawn for log in logs]
        unseeded = [made for made in drawn[0] if recorded_draws.is_unseeded(made)]
        if unseeded:
            return f"{recorded_draws.text(unseeded[0])} has no seed that the noise could set"
        if drawn[0] != drawn[1] and all(drawn):
            one, other = next((a, b) for a, b in zip(*drawn, strict=False) if a != b)
            texts = [recorded_draws.text(made) for made in (one, other)]
            return f"{texts[0]} is made in a step, and {texts[1]} when the same question is asked again"
    return ""


def _settles(probe: Probe, question: Question) -> bool:
    put(probe, question)
    answers = [put(probe, question) for _ in range(3)]
    return all(probe.compare("restore", answers[0], answer, "") is None for answer in answers[1:])


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
            answer = put(probe, question)
            count += 1
            found = probe.compare("history", answers[int(i)], answer, question.spot.label)
            if found is not None:
                faulty.append((question, found))
            if count % 4 == 0:
                other = questions[int(rng.integers(len(questions)))].spot
                probe.ask(other, other.actions, probe.noise("in between", round_number, count))
    if not faulty:
        probe.in_time()
        return Check("history", "pass", f"{count} questions in scrambled order had their old answers")
    question, found = faulty[0]
    fault = _remembered(probe, [question for question, _ in faulty[:EXAMINED]], questions)
    where = probe.where(question.spot, question.action)
    message = f"what ran before shows in {len(faulty)} answers under the same noise; {where}: {found.text}"
    return failed("history", message, fault)


def _remembered(probe: Probe, faulty: Sequence[Question], questions: Sequence[Question]) -> str:
    """What is remembered: the state before, or only the action before."""
    spots = list({question.spot.label: question.spot for question in questions}.values())
    actions = spots[0].actions
    alike = [spot for spot in spots if safe_fingerprint(spot.actions) == safe_fingerprint(actions)][:3]
    by_action = False
    for question in faulty:
        after = {(i, j): _after(probe, s, a, question) for i, s in enumerate(alike) for j, a in enumerate(actions)}
        for i, j in after:
            same_action, same_state = after[0, j], after[i, 0]
            if probe.compare("history", same_action, after[i, j], "") is not None:
                return "state not restored in full"
            by_action |= probe.compare("history", same_state, after[i, j], "") is not None
    return "dropped previous action" if by_action else "hidden state"


def _after(probe: Probe, spot: Spot, action: Action, question: Question) -> ObservedOutcome:
    """The answer to a question after another action was run elsewhere a few times."""
    for i in range(PREPARATIONS):
        # The noise is the question's own, so that no single draw spoils all preparations.
        probe.ask(spot, [action], probe.noise("preparation", question.spot.label, question.draw, i))
    return put(probe, question)
