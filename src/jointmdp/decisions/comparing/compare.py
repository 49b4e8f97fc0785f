"""Which action, policy or decision is best under common random numbers, sampled until that is shown.

``print(compare(simulator, policy, state))`` samples replications in which all alternatives share their noise, and says
how sure the answer is and what the sharing has saved.

**When sampling stops.** At a few looks, whose level allows for sizes that follow the data anyhow (`sequential`).
Alternatives that are shown to be worse than another are sampled no more: see `sequential`.

**What is promised.** Two families of intervals come out, each of which holds as a whole: those of all pairs' mean gaps,
which decide when to stop; and all others, of mean returns, variances, P(better), P(tie), P(best).
"""

import itertools
import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Never

import numpy as np

from jointmdp.decisions.comparing.comparison import Comparison, Verdict
from jointmdp.decisions.comparing.comparisons import Comparisons
from jointmdp.decisions.comparing.judging import Judge, Rules
from jointmdp.decisions.comparing.sequential import MOST_GROWTH, RACE, Race, Stage
from jointmdp.ground import checks
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.progress import Meter
from jointmdp.ground.watchdog import told_late
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.montecarlo.alternatives import (
    Alternatives,
    SimulationSettings,
    decisions_of,
    first_actions,
    whole_policies,
)
from jointmdp.simulation.montecarlo.best_action import check_distinct
from jointmdp.simulation.montecarlo.noise_checks import CHECKED, FEW, MANY, NoiseChecks, can_tell
from jointmdp.simulation.montecarlo.samples import WIDE
from jointmdp.simulation.watching.probe import are_close

QUIET = 0.05  # of the error: for the look at whether anything is random
BESIDE = 5  # pilots, at most, that the other kinds of sharing are looked at with


def decide(
    found: Alternatives,
    rules: Rules = Rules(),  # noqa: B008 - a value that never changes
    *,
    seed: int | None = None,
    executor: Executor | str | None = None,
) -> Comparison:
    """Sample until one alternative is shown best or every gap is known to `half_width`, and report."""
    (answer,) = decide_all(found, rules, seed=seed, executor=executor).values()
    return answer


def decide_all(
    found: Alternatives,
    rules: Rules,
    *,
    seed: int | None = None,
    executor: Executor | str | None = None,
    before: Mapping[str, Comparison] | None = None,
    replications: int | None = None,
) -> dict[str, Comparison]:
    """The same for each result of a run, by its name: of one without a name, ``""``.

    `before` is what is gone on with, to `replications` whatever is shown, where that is given.
    """
    labels = found.labels
    if len(labels) < 2:
        raise ModelError(f"only {labels[0]} was given; comparing takes at least two alternatives")
    check_distinct(labels)
    if rules.bounds is not None and found.return_bound is None:
        found = found._replace(return_bound=max(map(abs, rules.bounds)))  # what is left out is a return like the others
    began, checked = time.monotonic(), None
    title = "comparing under common random numbers"
    with Meter(title, rules.seconds) as meter, told_late(f"{title}, {found.name}"), opened(executor) as workers:
        if before is None:
            stage = Stage(rules.pilot, rules.max_replications, rules.is_exact, rules.looks(len(labels)))
            size, looked, race = stage.first, 0, Race(found)
            checked = NoiseChecks(found, size, workers)
            if can_tell(found) and size >= MANY:
                race.grow(min(FEW, size), meter, workers, began, rules.seconds)
            is_quiet = race.run is not None and checked.is_quiet(race.run)
            names = getattr(found.simulator, "results", None) or ("",)
            judges = {name: Judge(rules.of(name), k) for k, name in enumerate(names)}
        else:
            race, stage, judges = _resumed(found, rules, before)
            begun = stage.look + stage.before  # a look at whether anything is random is none of these
            size, looked, is_quiet = replications or (race.size if begun else stage.pilot), race.size, False
            if found is not next(iter(before.values())).origin:
                checked = NoiseChecks(found, size, workers)
        for name in (*rules.by_result, *rules.decide_on):
            if name not in judges:
                known = ", ".join(map(repr, judges)) if "" not in judges else "one number, without a name"
                raise ModelError(f"there is no result {name!r}; a run returns {known}")
        if len({judge.rules.bounds is None for judge in judges.values()}) > 1:
            raise ModelError("bounds are given for some results and not for others; give them for all, or for none")
        asked = [judge for name, judge in judges.items() if name in (rules.decide_on or judges)]
        # The look at whether anything is random has a part of the error, where there is one.
        parts, shares = len(judges), (QUIET, 1 - QUIET) if can_tell(found) else (0.0, 1.0)

        def level(intervals: int) -> float:
            """What each of so many intervals of each result may miss with."""
            error = (1 - rules.confidence) / (intervals * parts)
            return shares[0] * error if is_quiet else stage.error(shares[1] * error)

        while True:
            if is_quiet:
                size = race.size
            elif size > race.size:
                race.grow(size, meter, workers, began, rules.seconds)
                is_jump = looked > 0 and size > MOST_GROWTH * looked  # which only the last look may be
                stage = stage._replace(look=stage.looks if is_jump and not stage.is_fixed else stage.look + 1)
            is_late = time.monotonic() - began > rules.seconds
            if race.size < size:
                size = rules.size_in_time(race.size, looked)
                race.cut(size)
            looked = size
            for judge in judges.values():
                judge.look(race, level(math.comb(len(labels), 2)))
            still = [judge for judge in asked if judge.verdict is None]
            if is_quiet or is_late or replications or not still:
                break
            aims = max(judge.wanted for judge in still), max(judge.enough for judge in still)
            following = stage.after(size, *aims)
            if following is None:
                break
            covered = set.intersection(*(judge.covered for judge in asked))
            race.drop(dict.fromkeys(sorted(covered), asked[0].best))
            size = following
    warned = list(next(iter(before.values())).warnings) if before else []
    if checked is not None:
        warned += checked.finish(race.whole_rows)
    others: list[Sharing] = [each for each in ("state", "time") if each in found.can_share and each != found.sharing]
    num_beside = min(race.size, BESIDE * rules.pilot)
    beside = {other: found.sampler(0, num_beside, other) for other in others if rules.other_sharing}
    answers = {}
    for name, judge in judges.items():
        end = Verdict.CONSTANT if is_quiet else judge.verdict or (Verdict.TIME if is_late else Verdict.UNDECIDED)
        answers[name] = Comparison(
            title=f"{name}: {found.title}" if name else found.title,
            **judge.answer(race, level, beside, seed),
            status=end,
            num_replications=size,
            looks=stage.before + stage.look,
            sharing=found.sharing,
            confidence=rules.confidence,
            half_width=judge.rules.half_width,
            indifference=None
            if judge.rules.half_width is not None and judge.rules.indifference is None
            else judge.room,
            is_exact=rules.is_exact,
            seconds=time.monotonic() - began + (next(iter(before.values())).seconds if before else 0.0),
            seed=seed,
            beside=num_beside if beside else 0,
            remark=found.remark,
            warnings=tuple(warned),
            values=() if found.actions else found.values,
            numbers=found.values if found.actions else (),
            minimise=judge.rules.minimise,
            stage=stage,
            bounds=judge.rules.bounds,
            origin=found,
        )
    return answers


def _resumed(
    found: Alternatives, rules: Rules, before: Mapping[str, Comparison]
) -> tuple[Race, Stage, dict[str, Judge]]:
    """Where a comparison stood, after a check that it is one of the same alternatives."""
    first = next(iter(before.values()))
    runs, m = [each.replications for each in before.values()], len(first.labels)
    wide = {
        name: np.concatenate(
            [getattr(run, name) + (m * k if name == "leaders" else 0) for k, run in enumerate(runs)], 1
        )
        for name in WIDE
        if getattr(runs[0], name) is not None
    }
    run = runs[0]._replace(**wide)
    if found is not first.origin:
        for what in ("labels", "sharing"):
            now, then = getattr(found, what), getattr(first, what)
            if now != then:
                what = what.replace("labels", "alternatives")
                raise ModelError(f"the {what} of the comparison to go on with are {then!r}, not {now!r}")
        again = found.sampler(0, CHECKED, found.sharing).returns
        if again.shape[1] != run.returns.shape[1] or not are_close(again, run.returns[:CHECKED]):
            raise ModelError(
                f"replications 0 to {CHECKED - 1} of {found.name} are others than those of the comparison to go on "
                "with: another seed, state or policy, or the simulator has changed"
            )
    dropped = {j: each.dropped_for for j, each in enumerate(first.alternatives) if each.dropped_for is not None}
    race = Race(found, run, [each.num_replications for each in first.alternatives])
    race.drop({j: first.labels.index(winner) for j, winner in dropped.items()})
    judges = {}
    for k, (name, each) in enumerate(before.items()):
        lower = np.zeros((m, m))  # ends of all differences, each positive where the first is better
        for (i, j), gap in zip(itertools.combinations(range(m), 2), each.gaps, strict=True):
            lower[i, j], lower[j, i] = gap.mean_interval.lower, -gap.mean_interval.upper
        judges[name] = Judge(rules.of(name), k, each.indifference or 0.0, len(each.whole), lower=lower)
    return race, first.stage.resumed(race.size, rules.max_replications, rules.looks(m)), judges


def compare(  # many parameters: a front door, one keyword for each setting
    simulator: Any,
    policy: Any = None,
    state: Any = None,
    actions: Sequence[Any] | None = None,
    *,
    policies: Mapping[str, Any] | Sequence[Any] | None = None,
    decisions: Mapping[str, Any] | Sequence[Any] | None = None,
    half_width: float | Mapping[str, float] | None = None,
    indifference: float | Mapping[str, float] | None = None,
    confidence: float = 0.95,
    sharing: Sharing | None = None,
    horizon: int | None = None,
    discount: float | None = None,
    pilot: int = 200,
    max_replications: int = 100_000,
    seconds: float | None = None,
    bounds: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
    other_sharing: bool = False,
    minimise: bool | Collection[str] = False,
    tails: Literal["any", "light"] = "any",
    eliminate: bool = True,
    decide_on: str | Collection[str] = (),
    resume: Comparison | Comparisons | None = None,
    seed: int = 0,
    executor: Executor | str | None = None,
    **unknown: Never,
) -> Comparison:
    """Which alternative gives most under common random numbers, sampled until that is shown.

    That the noise is common is checked first: replications are run again, with the alternatives in the opposite order.
    What does not give the same again is refused; see `jointmdp.audit` for a thorough look.

    A function may return several results, ``{"profit": …, "wait": …}``, a named tuple or a dataclass: the answer is
    then a `Comparisons` with one comparison for each, of the same replications.

    Args:
        simulator: a `JointMDP`, a simulator, or a function ``run(decision, seed) -> outcome``; where its second
            parameter is called `noise` it is given a `Noise` with named streams, ``noise["demand"]``, instead.
        policy, state, actions: compares first `actions` (by default all) in `state`, after which `policy` is followed.
            Without a state, each replication begins in a starting state of its own, the same for all alternatives.
        policies: compares whole policies instead, ``{"name": policy, …}``.
        decisions: compares decisions of a function instead.
        half_width: go on until the gap of every pair is known to ± this. By default sampling stops as soon as one
            alternative is shown best. Of several results, this and the next may be dictionaries, ``{"wait": 0.5}``.
        indifference: a lead of the true best up to this does not matter; by default 5 % of the standard deviation of
            the returns (the median one). Given together with `half_width`, both must be reached.
        confidence: with which all intervals of gaps hold together, and all others together.
        sharing: which branches share their noise; by default as the simulator says itself.
        horizon, discount: of the returns; by default as the simulator says itself.
        pilot: replications before the first look.
        max_replications: stop here at the latest; the status then says that nothing was shown.
        seconds: stop sampling after about this long; the status then says that the time was up. The replications under
            way are finished, and the compiled engine makes 2,048 at a time.
        bounds: between which every return lies. The intervals then hold for every number of replications, and are
            wider; otherwise they rest on the central limit theorem.
        other_sharing: also sample the other kind of sharing, up to five pilots, for the standard deviation of its gaps.
        minimise: returns are costs, and the lowest is the best. Mean returns stay costs; a gap is an advantage, how
            much less the first alternative costs, so that positive always means better.
            Of several results, the names of those that are costs.
        tails: ``"any"`` allows for events that no replication has shown: one kind, as rare as so many replications can
            miss (about 1 in a third of them), whose gap is twice as far from the median as the farthest one seen; no
            winner is declared within what these could change. ``"light"`` says that the replications show all there
            is, as normal noise does: narrower intervals from the central limit theorem alone.
        eliminate: alternatives that are shown to be worse than another are not sampled any more, at no cost in
            confidence; with a `half_width` all are sampled to the end.
        decide_on: of several results, the names of those that must be decided; by default all.
        resume: a comparison to go on with, such as one from a file: everything else is given as it was. In the same
            session ``comparison.resume()`` is shorter.
        seed: replication i depends on the seed and i alone.
        executor: where replications are made: here, ``"processes:4"``, ``"ray:ADDRESS"``; the result is the same.
    """
    checks.refuse_keywords(unknown, compare)
    if decisions is not None:
        if any(given is not None for given in (policy, state, actions, policies, discount, horizon)):
            raise ModelError(
                "decisions are tried by a function run(decision, seed): leave policy, state and so on to it"
            )
        found = decisions_of(simulator, decisions, seed, sharing)
    else:
        settings = SimulationSettings(seed, sharing, discount, horizon, some_whole=True)
        if policies is None:
            found = first_actions(simulator, policy, state, actions, settings)
        elif policy is None and actions is None:
            found = whole_policies(simulator, policies, state, settings)
        else:
            raise ModelError("give either policies to compare, or one policy and the first actions to compare")
    most = checks.as_count("max_replications", max_replications, least=2)
    if tails not in ("any", "light"):
        raise ModelError(f"tails must be 'any' or 'light', not {tails!r}")
    by_result, common = dict[str, dict[str, Any]](), dict[str, Any]()
    for name, given, check in (
        ("half_width", half_width, checks.as_positive),
        ("indifference", indifference, checks.as_amount),
        ("bounds", bounds, _as_bounds),
    ):
        if isinstance(given, Mapping):
            for result, value in given.items():
                by_result.setdefault(result, {})[name] = check(name, value)
        else:
            common[name] = None if given is None else check(name, given)
    costs = minimise if isinstance(minimise, Collection) else ()
    for name in [costs] if isinstance(costs, str) else costs:
        by_result.setdefault(name, {})["minimise"] = True
    rules = Rules(
        **common,
        confidence=checks.as_fraction("confidence", confidence),
        pilot=min(checks.as_count("pilot", pilot, least=2), most),
        max_replications=most,
        seconds=math.inf if seconds is None else checks.as_positive("seconds", seconds),
        other_sharing=bool(other_sharing),
        minimise=not isinstance(minimise, Collection) and bool(minimise),
        eliminate=bool(eliminate),
        by_result=by_result,
        decide_on=(decide_on,) if isinstance(decide_on, str) else tuple(decide_on),
        tails=tails,
    )
    before = None if resume is None else resume.results
    answers = decide_all(found, rules, seed=int(seed), executor=executor, before=before)
    return answers[""] if "" in answers else Comparisons.of(answers)  # type: ignore[return-value] # as the run returns


def resumed(
    before: Mapping[str, Comparison], replications: int | None, executor: Executor | str | None, **settings: Any
) -> dict[str, Comparison]:
    """More of the same replications; settings that are None are as they were."""
    first = next(iter(before.values()))
    if first.origin is None:
        raise ModelError(
            "this comparison comes from a file, which does not hold the simulator; give it again with all that it was "
            "compared with: compare(simulator, …, resume=comparison)"
        )
    aims = {name: settings[name] for name in ("half_width", "indifference")}
    is_asked = any(aim is not None for aim in aims.values())
    by_result = {
        name: {"minimise": each.minimise, "bounds": each.bounds}
        | (aims if is_asked else {aim: getattr(each, aim) for aim in aims})
        for name, each in before.items()
    }
    most, stage = settings["max_replications"], first.stage
    if replications is not None:
        most = checks.as_count("replications", replications)
    is_race = stage.looks == RACE and settings["half_width"] is None
    rules = Rules(
        *(None, None, first.confidence, stage.pilot, checks.as_count("max_replications", most)),
        seconds=math.inf if settings["seconds"] is None else checks.as_positive("seconds", settings["seconds"]),
        eliminate=is_race,
        tails=first.gaps[0].tails,
        by_result={name: {k: v for k, v in each.items() if v is not None} for name, each in by_result.items()},
    )
    return decide_all(first.origin, rules, seed=first.seed, executor=executor, before=before, replications=replications)


def _as_bounds(name: str, bounds: Any) -> Interval:
    try:
        lower, upper = (checks.as_number("bounds", end) for end in bounds)
    except (TypeError, ValueError):
        raise ModelError(f"bounds must be two numbers, the least and the largest return, not {bounds!r}") from None
    if not -math.inf < lower <= upper < math.inf:
        raise ModelError(f"bounds are ({lower:g}, {upper:g}); give the least and the largest return, both finite")
    return Interval(lower, upper)
