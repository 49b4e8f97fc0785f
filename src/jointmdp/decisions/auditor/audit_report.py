"""What an audit found: one plain sentence a check, a guess at the cause, and an exit status."""

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from jointmdp.ground.answers import ResultFace
from jointmdp.ground.files import to_json

CheckStatus = Literal["pass", "warn", "fail", "skip"]
MARKS: dict[CheckStatus, str] = {"pass": "✓", "warn": "!", "fail": "✗", "skip": "-"}
MOST_NAMED = 6  # decisions that a sentence names
WORDS: dict[CheckStatus, str] = {"fail": "failed", "warn": "with a warning", "pass": "passed", "skip": "not checked"}

OUT_OF_TIME = "out of time"
NOT_FOLLOWED = "what is drawn from it cannot be followed"
DECISION = "decision"  # what stands before a decision's name in messages

CLAIMS = {
    "answers": "every query is answered with one outcome an action",
    "untouched": "a query leaves the snapshots untouched",
    "observation": "the observation is not stale after a restore",
    "globals": "no hidden global generator",
    "restore": "restoring gives back the same state",
    "history": "what was run before does not matter",
    "live": "a restored state goes on as the live environment does",
    "processes": "another process gives the same answers",
    "repetition": "the same action asked twice in one query gives the same outcome",
    "order": "the order of the actions does not matter",
    "noise": "the actions consume the noise in step",
    "law": "each coordinate of a query has the law of a plain step",
    "rewards": "rewards lie within their claimed bounds",
    "finite": "rewards and observations are finite",
    "identity": "states that are the same, and only those, have the same identity",
    "over": "a state that is over pays nothing and stays",
}

POLICY_CLAIM = {"policy": "a policy that is given chooses the same again"}  # where there is one

# The same for a function run(decision, seed); what speaks of states is not checked there.
RUN_CLAIMS = {
    "answers": "every run returns a number",
    "globals": "no generator of the whole program that the seed does not set",
    "restore": "a run gives the same result again",
    "history": "what was run before does not matter",
    "processes": "another process gives the same results",
    "noise": "the decisions draw from the same streams, in step",
    "pairing": "pairing the decisions saves replications",
    "finite": "results are finite",
}
# Words of simulators, and what who wrote a function of a decision and a seed would say.
RUN_WORDS = (
    ("under the same noise", "with the same seed"),
    ("whatever the noise", "whatever the seed"),
    ("draws of the noise", "seeds"),
    ("seeded from the noise", "seeded by the run itself, from its seed,"),
    ("from the noise", "from the seed"),
    ("the noise", "the seed"),
    ("in each step", "in each run"),
    ("a step", "a run"),
    ("the step", "the run"),
    ("from query to query", "from run to run"),
    ("queries were answered", "runs returned a number"),
    ("of the query", "of the run"),
    ("questions", "runs"),
    ("question", "run"),
    ("queries", "runs"),
    ("query", "run"),
    ("answers", "results"),
    ("answer", "result"),
    ("rewards and observations", "results"),
    ("reward ", "result "),
    ("outcomes", "results"),
    ("outcome", "result"),
    ("no action", "no decision"),
    (f"{DECISION}, ", f"{DECISION} "),
)


# What helps a function run(decision, seed), which has no snapshots and is given no noise but its seed.
_SEED_CURE = "make every generator in it from the seed that it is given, rng = np.random.default_rng(seed)"
_RESET = "something is remembered from run to run; reset it at the start of each run"
RUN_CAUSES = {
    "query not answered": "can every decision be run with any seed, and does the function return a number each time?",
    "generator not restored": f"a generator goes on from run to run; {_SEED_CURE}",
    "hidden state not restored": f"{_RESET}, and {_SEED_CURE}",
    "state not restored in full": _RESET,
    "dropped previous action": "something is remembered from the run before; reset it at the start of each run",
    "hidden state": _RESET,
    "wall clock": "the outcome depends on the clock; let the function be given the time, or count it in the model",
    "global numpy.random": f"it draws from the global generator numpy.random; {_SEED_CURE}",
    "global random": "it draws from the global generator random; use rng = random.Random(seed), or "
    "np.random.default_rng(seed)",
    "frozen noise": f"a generator has a fixed seed; {_SEED_CURE}",
    "frozen generator": f"a generator has a fixed seed; {_SEED_CURE}",
    "seed ignored": _SEED_CURE,
}

# A guess at the cause of each fault, and what to do about it. Faults that are not here get theirs where they are found.
CAUSES = {
    "query not answered": "does the state that it is asked in allow the action, and is everything in the snapshot?",
    "query does not return": "it waits for something that does not come (a lock, a socket, an answer), runs in a "
    "circle, or takes longer than the audit may: give that more with seconds=",
    "mutating query": "step or query works on the snapshot itself; copy it first, or make states that cannot change",
    "shared snapshot": "the simulator hands out an object that it goes on using (its live state, a buffer); return a "
    "copy",
    "snapshot changes": "some query works on a snapshot, or hands out an object that it goes on using; copy it",
    "shared observation buffer": "observe returns a buffer that is used again; return a copy",
    "stale observation": "the observation comes from the live simulator, not from the snapshot; keep it in the "
    "snapshot, or compute it from there",
    "start not reproducible": "start draws from a generator of its own, or from what was run before; draw from the "
    "noise",
    "wall clock": "the outcomes agree when the clock is stopped: a step reads the time; make it state",
    "state not restored in full": "the outcome depends on the state that was run before: part of the live state is not "
    "set by a restore; add it to what a snapshot holds",
    "dropped previous action": "the outcome depends on the action that was run before: the simulator remembers it "
    "(sticky actions, action smoothing, a rate limit) and the snapshot does not; add it to what a snapshot holds",
    "hidden state": "the simulator remembers something that its snapshots do not hold; add it to them",
    "order-dependent query": "an earlier action of the query leaks into a later one: restore the state and "
    "restart the noise (noise.fresh()) before every action",
    "shock tied to the query position": "each place in the query has its own noise, or the actions share one generator "
    "that runs on: restart the noise (noise.fresh()) for every action",
    "outcome depends on the company": "a later action of the query changes the outcome of an earlier one: do the "
    "outcomes share an object?",
    "frozen generator": "the snapshot carries a generator that is never given new noise, so the noise of a state is "
    "always the same; name it in streams=, or draw from the noise",
    "frozen noise": "something random is not under the noise's control, and every replication would be the same; draw "
    "it from the noise, or name its generator in streams=",
    "seed ignored at the start": "every episode begins in the same place, whatever seed reset is given: make the "
    "generator from that seed (self.np_random in a Gymnasium environment); if one start is meant, all is well",
    "seeds that coincide": "the seed is cut down (seed % 10, a hash of few bits) before a generator is made from it; "
    "use all of it, default_rng(seed)",
    "process-dependent": "a step depends on hash() of a text, on id(), on the order of a set or on the process itself; "
    "use zlib.crc32, a table, or sorted()",
    "noise not shared": "noise drawn under another name for every action is not shared: name streams by their source",
    "draws out of step": "every step starts from noise of its own, so later steps stay in step, but in this one all "
    'draws after the first difference shift: draw by name, noise["demand"], or draw all that may be needed before '
    "looking at the action",
    "seed ignored": "make every generator in it from the seed that it is given",
    "pairing saves nothing": "the decisions hang on different noise, use it in opposite ways (antithetic draws for "
    "one), or do not share it: do they draw from the same streams, for the same purpose?",
    "law of the reward": "the query's reward is not that of a step: is it scaled, shifted, or of another state?",
    "law of the termination": "does the query end episodes otherwise than a step, a time limit perhaps?",
    "law of the observation": "a query leads elsewhere than a step: does it restore the whole state, and use all "
    "noise?",
    "reward outside its bounds": "reward_bounds is too narrow (a bonus or a penalty at the end?); bounds on returns "
    "rest on it",
    "number that is not finite": "a division by zero, an overflow, or a value that was never set",
    "over state does not absorb": "query must give a state that is over back as it is, with reward 0; did it step on, "
    "or reset itself?",
    "identity of the object": "identity depends on which object holds the state (id(), an address, a counter); use "
    "what it holds",
    "identity ignores part of the state": "identity leaves out part of the state (a clock, a counter, a previous "
    "action, a generator that is not given new noise); branches would share a table that is not theirs",
    "state without identity": "all else was checked by what is observed; give identity=, a function of the state that "
    "returns numbers, texts or tuples of them, if branches are to share their noise by state",
    "identity alone": "an identity that counts more than what matters (a cache, a clock of the physics, the last "
    "iterate of a solver) keeps branches from meeting, no more; give identity= where that matters",
    "rounding": "the same arithmetic compiled in two ways; gaps that should be 0 will be tiny instead, and states that "
    "should meet will not",
}


@dataclass(frozen=True)
class Check:
    """One claim about a simulator and what became of it."""

    name: str
    status: CheckStatus
    message: str
    """What was seen, in a sentence."""
    cause: str = ""
    """A guess at the fault and what to do about it."""
    fault: str = ""
    """The fault by name, where there is one; several with commas between."""
    left_out: tuple[str, ...] = ()
    """Decisions or actions that it did not ask."""
    claim: str = ""
    """What the check stands for, as a sentence."""

    @property
    def is_incomplete(self) -> bool:
        """Whether it was not made, or not for all, for lack of time or of a way to see: such a check has not passed."""
        is_left = OUT_OF_TIME in self.message or NOT_FOLLOWED in self.message
        return self.status == "skip" and (is_left or bool(self.left_out))

    def without(self, left_out: Sequence[str]) -> "Check":
        """The check as it is where some decisions were not asked: what it says of the others is no pass."""
        if not left_out:
            return self
        more = f" and {len(left_out) - MOST_NAMED} more" if len(left_out) > MOST_NAMED else ""
        words = f"{', '.join(left_out[:MOST_NAMED])}{more} not asked"
        is_passed = self.status == "pass"
        message = f"not checked for all: {words}; of the others: {self.message}" if is_passed else self.message
        if self.status == "skip":
            message = f"{self.message}; {words}"
        return replace(self, status="skip" if is_passed else self.status, message=message, left_out=tuple(left_out))

    def for_a_run(self) -> "Check":
        """The check in the words of who wrote a function of a decision and a seed."""
        message = self.message
        for word, other in RUN_WORDS:
            message = message.replace(word, other)
        found = replace(self, message=message, claim=RUN_CLAIMS[self.name])
        first = self.fault.split(", ")[0]
        if first not in RUN_CAUSES:
            return found
        if first == "frozen noise":
            return replace(found, fault="seed ignored", cause=RUN_CAUSES[first])
        where, is_kept, _ = self.cause.partition(" changes ")
        if is_kept:
            advice = RUN_CAUSES["hidden state not restored"].partition("; ")[2]
            return replace(found, cause=f"{where} changes from run to run; {advice}")
        seen, is_named, _ = self.cause.partition("; add it to")
        return replace(found, cause=f"{seen}; {RUN_CAUSES['seed ignored']}" if is_named else RUN_CAUSES[first])


def failed(name: str, message: str, fault: str, cause: str = "") -> Check:
    """A check that found a fault."""
    return Check(name, "fail", message, cause or CAUSES[fault], fault)


def warned(name: str, message: str, fault: str, cause: str = "") -> Check:
    """A check that found something that may be a fault."""
    return Check(name, "warn", message, cause or CAUSES[fault], fault)


def skipped(name: str, reason: str) -> Check:
    """A check that could not be made."""
    return Check(name, "skip", f"not checked: {reason}")


@dataclass(frozen=True, eq=False)
class AuditReport(ResultFace):
    """The checks of one simulator; ``print(report)`` is the table, `is_ok` the verdict."""

    simulator: str
    checks: tuple[Check, ...]
    false_alarm: float
    """The most that a healthy simulator fails with; all of it belongs to the check of the law."""
    num_tests: int
    """Statistical tests that share the false-alarm rate."""
    num_states: int
    num_samples: int
    """Samples of each statistical test, from the query and from the plain step."""
    seed: int
    seconds: float

    def __getitem__(self, name: str) -> Check:
        """The check called `name`."""
        return {check.name: check for check in self.checks}[name]

    def _with(self, status: CheckStatus) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status == status)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return self._with("fail")

    @property
    def warnings(self) -> tuple[Check, ...]:
        """The checks that warn."""
        return self._with("warn")

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults found, by name; those of warnings too."""
        return tuple(dict.fromkeys(fault for check in self.checks for fault in check.fault.split(", ") if fault))

    @property
    def not_checked(self) -> tuple[Check, ...]:
        """The checks for which the time did not suffice, that could not ask all decisions or follow their noise."""
        return tuple(check for check in self.checks if check.is_incomplete)

    @property
    def is_ok(self) -> bool:
        """Whether nothing failed, and nothing was left unchecked that could be; warnings are not failures."""
        return not self.failures and not self.not_checked

    def exit_status(self, strict: bool = False) -> int:
        """0 passed; 1 where a check failed or, with `strict`, one warns; 2 where not all could be checked."""
        if self.failures or (strict and self.warnings):
            return 1
        return 2 * bool(self.not_checked)

    def table(self) -> list[dict[str, Any]]:
        """One row per check."""
        return [asdict(check) for check in self.checks]

    def to_json(self) -> str:
        """The report as one JSON object."""
        numbers = ("false_alarm", "num_tests", "num_states", "num_samples", "seed")
        found = {"simulator": self.simulator, "is_ok": self.is_ok, "faults": list(self.faults)}
        found["not_checked"] = [check.name for check in self.not_checked]
        found |= {name: getattr(self, name) for name in numbers}
        return to_json(found | {"seconds": round(self.seconds, 3), "checks": self.table()})

    @property
    def summary(self) -> str:
        """The verdict in a sentence."""
        counts = [f"{len(self._with(status))} {word}" for status, word in WORDS.items() if self._with(status)]
        missing = dict.fromkeys(name for check in self.checks for name in check.left_out)
        text = f"{self.simulator}: {', '.join(counts)}"
        if missing:
            return f"{text}; not all asked: {', '.join([*missing][:MOST_NAMED])}{'…' * (len(missing) > MOST_NAMED)}"
        late = any(OUT_OF_TIME in check.message for check in self.not_checked)
        unseen = any(NOT_FOLLOWED in check.message for check in self.not_checked)
        return text + "; the time did not suffice" * late + "; the noise could not be followed" * unseen

    @property
    def guarantee(self) -> str:
        """What the verdict is worth, in a sentence or two."""
        where = f" in {self.num_states} state{'s' * (self.num_states != 1)}" if self.num_states else ""
        exact = f"Compared bit for bit{where} in {self.seconds:.1f} s."
        if not self.num_tests:
            return exact
        return (
            f"{exact} {self.num_tests} statistical tests with {self.num_samples} samples a side; a healthy simulator "
            f"fails one of them with probability at most {self.false_alarm:g}."
        )

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        margin = " " * (width + 5)
        lines = [self.summary, ""]
        for check in self.checks:
            text = f"{check.fault}: " * bool(check.fault) + (check.message or check.claim)
            parts = [text, *([f"→ {check.cause}"] if check.cause else [])]
            wrapped = [line for part in parts for line in textwrap.wrap(part, 116 - len(margin))]
            lines.append(f"  {MARKS[check.status]} {check.name:<{width}} {wrapped[0]}")
            lines.extend(margin + line for line in wrapped[1:])
        return "\n".join([*lines, "", *textwrap.wrap(self.guarantee, 116)])
