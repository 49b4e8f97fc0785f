"""Checks that the same question has the same answer: hidden generators, hidden state, the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from jointmdp.auditor import hidden_sources
from jointmdp.auditor.audit_report import Check, skipped
from jointmdp.auditor.observed_outcomes import Difference, Sight, safe_fingerprint
from jointmdp.auditor.probe import Probe, Spot
from jointmdp.simulators.simulator import Action, Outcome

PREPARATIONS = 4  # runs that bring a simulator with sticky actions into a known place
OTHER_SEEDS = 4  # of a global generator, tried where it moves
HIDDEN, CLOCK = "hidden state not restored", "wall clock"
SEARCHED = 3  # questions around which the simulator is searched for generators that move
EXAMINED = 8  # questions with changing answers that are looked into


class Question(NamedTuple):
    """One action in one state under one draw of the noise."""

    spot: Spot
    action: Action
    draw: int


class Memory(NamedTuple):
    """The settled answers, and the questions whose first answer was another."""

    answers: dict[int, Sight]
    unsettled: list[tuple[Question, Difference]]


def put(probe: Probe, question: Question) -> Sight:
    """The answer to a question."""
    noise = probe.noise("question", question.spot.label, question.draw)
    return probe.ask(question.spot, [question.action], noise)[0]


def _start(probe: Probe, draw: int) -> Sight:
    """A starting state as if it were an outcome."""
    return probe.look(Outcome(np.nan, probe.begin(draw)), "the start", is_start=True)


def check_globals(probe: Probe, spots: Sequence[Spot]) -> Check:
    """Do the generators of the whole program move, and does it matter where they stand?"""
    moved: dict[str, str] = {}
    reseeded: set[str] = set()
    telling: dict[str, str] = {}
    asks: list[tuple[object, Callable[[], Sight]]] = [("the start", partial(_start, probe, 0))]
    for i, spot in enumerate(spots):
        questions = [Question(spot, action, i) for action in spot.actions]
        asks += [(probe.where(spot, question.action), partial(put, probe, question)) for question in questions]
    for where, ask in asks:
        hidden_sources.seed_globals(1)
        before = hidden_sources.global_states()
        one = ask()
        after = hidden_sources.global_states()
        for name in hidden_sources.changed(before, after):
            for seed in range(2, 2 + OTHER_SEEDS):
                hidden_sources.seed_globals(1)
                hidden_sources.seed_globals(seed, name)
                other = ask()
                if hidden_sources.global_states()[name] == after[name]:
                    reseeded.add(name)
                    break
                moved.setdefault(name, str(where))
                found = probe.compare("globals", one, other, where)
                if found is not None:
                    telling.setdefault(name, f"{where}: {found.text}")
    if telling:
        name, example = next(iter(telling.items()))
        return Check(
            "globals",
            "fail",
            f"seeding {name} differently gives another outcome under the same noise ({example})",
            f"a step draws from the global generator {name}; draw from the noise that it is given (noise.rng, or "
            "np_random in a Gymnasium environment)",
            f"global {name}",
        )
    if moved:
        name, where = next(iter(moved.items()))
        return Check(
            "globals",
            "warn",
            f"the global generator {name} moves on in {where}, though no outcome was seen to depend on it",
            "draw from the noise instead; if it decides something rare, luck is not shared there",
            f"global {name}",
        )
    if reseeded:
        names = " and ".join(sorted(reseeded))
        return Check("globals", "pass", f"{names} is seeded from the noise in each step, so what it held is no matter")
    return Check("globals", "pass", "neither random nor numpy.random moves")


def check_restore(probe: Probe, questions: Sequence[Question]) -> tuple[Check, Memory]:
    """Each question three times in a row; the first answer may still show what ran before it."""
    memory = Memory({}, [])
    for draw in range(3):
        begun = probe.compare("restore", _start(probe, draw), _start(probe, draw), "the start")
        if begun is not None:
            message = f"two starts from the same noise are not the same: {begun.text}"
            cause = "start draws from a generator of its own, or from what was run before; draw from the noise"
            return Check("restore", "fail", message, cause, "start not reproducible"), memory
    faulty: list[tuple[Question, Difference]] = []
    moved: set[str] = set()
    for i, question in enumerate(questions):
        first = put(probe, question)
        second = put(probe, question)
        standing = hidden_sources.own_generators(probe.simulator, "simulator") if i < SEARCHED else {}
        third = put(probe, question)
        if i < SEARCHED:
            moved.update(hidden_sources.changed(standing, hidden_sources.own_generators(probe.simulator, "simulator")))
        memory.answers[i] = second
        where = probe.where(question.spot, question.action)
        found = probe.compare("restore", second, third, where)
        if found is not None:
            faulty.append((question, found))
        elif (found := probe.compare("restore", first, second, where)) is not None:
            memory.unsettled.append((question, found))
    if faulty:
        question, found = faulty[0]
        fault, cause = _irreproducible(probe, [question for question, _ in faulty[:EXAMINED]], moved)
        share = f"{len(faulty)} of {len(questions)} questions"
        where = probe.where(question.spot, question.action)
        message = f"{share} had two answers under the same noise; {where}: {found.text}"
        return Check("restore", "fail", message, cause, fault), memory
    if moved:
        message = f"{sorted(moved)[0]} is a random generator that moves on when the same question is asked again"
        cause = "no outcome was seen to depend on it; if it decides something rare, draw that from the noise instead"
        return Check("restore", "warn", message, cause, "generator not restored"), memory
    return Check("restore", "pass", f"{len(questions)} questions had the same answer again, bit for bit"), memory


def _irreproducible(probe: Probe, questions: Sequence[Question], moved: set[str]) -> tuple[str, str]:
    """What makes two answers in a row differ: a generator, the clock, or something that is counted."""
    advice = "add it to what a snapshot holds, name it in streams=, or draw from the noise"
    if moved:
        return (
            "generator not restored",
            f"{sorted(moved)[0]} moves on from query to query and is not restored; {advice}",
        )
    with hidden_sources.stopped_clock():
        if all(_settles(probe, question) for question in questions):
            return CLOCK, "the outcomes agree when the clock is stopped: a step reads the time; make it state"
    for question in questions:
        put(probe, question)
        before = hidden_sources.attributes(probe.simulator, "simulator")
        put(probe, question)
        kept = hidden_sources.changed(before, hidden_sources.attributes(probe.simulator, "simulator"))
        if kept and _is_determined(probe, questions):
            return HIDDEN, f"{kept[0]} changes from query to query and is not restored; {advice}"
    return (
        "generator not restored",
        f"something that is not in the snapshot changes from query to query, most often a random generator; {advice}",
    )


def _is_determined(probe: Probe, questions: Sequence[Question]) -> bool:
    """Whether two copies of the simulator go on alike: then all that is hidden is an attribute that was copied."""
    try:
        twins = [probe.twin(), probe.twin()]
    except Exception:  # much that is hidden cannot be copied
        return False
    rows = [[put(twin, question) for question in questions for _ in range(3)] for twin in twins]
    return all(probe.compare("restore", x, y, "") is None for x, y in zip(*rows, strict=True))


def _settles(probe: Probe, question: Question) -> bool:
    put(probe, question)
    answers = [put(probe, question) for _ in range(3)]
    return all(probe.compare("restore", answers[0], answer, "") is None for answer in answers[1:])


def check_history(probe: Probe, questions: Sequence[Question], memory: Memory, restore: Check) -> Check:
    """The same questions again in a scrambled order, with queries of several actions in between."""
    if restore.status == "fail":
        return skipped("history", "restoring fails already when nothing is run in between")
    faulty = list(memory.unsettled)
    rng = np.random.default_rng([probe.seed, 1])
    count = 0
    for round_number in range(2):
        for i in rng.permutation(len(questions)):
            question = questions[i]
            answer = put(probe, question)
            count += 1
            found = probe.compare("history", memory.answers[int(i)], answer, question.spot.label)
            if found is not None:
                faulty.append((question, found))
            if count % 4 == 0:
                other = questions[int(rng.integers(len(questions)))].spot
                probe.ask(other, other.actions, probe.noise("in between", round_number, count))
    if not faulty:
        return Check("history", "pass", f"{count} questions in scrambled order had their old answers")
    question, found = faulty[0]
    fault, cause = _remembered(probe, [question for question, _ in faulty[:EXAMINED]], questions)
    where = probe.where(question.spot, question.action)
    message = f"what ran before shows in {len(faulty)} answers under the same noise; {where}: {found.text}"
    return Check("history", "fail", message, cause, fault)


def _remembered(probe: Probe, faulty: Sequence[Question], questions: Sequence[Question]) -> tuple[str, str]:
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
                return (
                    "state not restored in full",
                    "the outcome depends on the state that was run before: part of the live state is not set by a "
                    "restore; add it to what a snapshot holds",
                )
            by_action |= probe.compare("history", same_state, after[i, j], "") is not None
    if by_action:
        return (
            "dropped previous action",
            "the outcome depends on the action that was run before: the simulator remembers it (sticky actions, "
            "action smoothing, a rate limit) and the snapshot does not; add it to what a snapshot holds",
        )
    return "hidden state", "the simulator remembers something that its snapshots do not hold; add it to them"


def _after(probe: Probe, spot: Spot, action: Action, question: Question) -> Sight:
    """The answer to a question after another action was run elsewhere a few times."""
    for i in range(PREPARATIONS):
        # Of the question, so that no unlucky noise spoils all preparations.
        probe.ask(spot, [action], probe.noise("preparation", question.spot.label, question.draw, i))
    return put(probe, question)
