"""A comparison in words: the verdict, an aligned table of each alternative and each gap, and what is promised."""

import math
import textwrap
from typing import NamedTuple

import numpy as np

from jointmdp.checks import SHARING_WORDS
from jointmdp.comparing.paired_gaps import Compared, PairedGap, Verdict
from jointmdp.intervals import Interval
from jointmdp.montecarlo.confidence_intervals import FEW
from jointmdp.report import aligned

WIDTH = 110  # of paragraphs; tables are as wide as they are


class Words(NamedTuple):
    """How one speaks of returns, or of costs."""

    gives: str = "gives"
    more: str = "more"
    most: str = "gives most"
    highest: str = "highest"
    amount: str = "return"
    first: str = "highest return"


COSTS = Words("costs", "less", "costs least", "lowest", "cost", "lowest cost")


def _words(found: Compared) -> Words:
    return COSTS if found.minimise else Words()


def as_text(found: Compared) -> str:
    """Everything a person wants to know, from the answer to the small print."""
    words = _words(found)
    parts = [
        f"Which {words.most}? {found.title[:1].upper()}{found.title[1:]}, {SHARING_WORDS[found.sharing]}.",
        verdict(found),
        *(_paragraph(f"Careful: {text}") for text in found.warnings),
        *_rarely(found),
    ]
    parts += ["", *aligned(_alternative_rows(found)), "", *aligned(_gap_rows(found))]
    if note := _often(found):
        parts += ["", note]
    parts += ["", _paragraph(_legend(found)), _paragraph(cost(found)), _paragraph(guarantee(found))]
    if found.remark:
        parts.append(_paragraph(found.remark))
    return "\n".join(parts)


def verdict(found: Compared) -> str:
    """The answer in a sentence or two."""
    best, others = found.best_label, found.others
    gaps = [found.advantage(other) for other in others]
    least, rival = min(zip(gaps, others, strict=True), key=lambda pair: pair[0].mean_interval.lower)
    words = _words(found)
    gives, more, highest = words.gives, words.more, words.highest
    if all(not gap.gaps.any() for gap in gaps):
        least_tie = min(gap.tie().lower for gap in gaps)
        text = (
            f"No difference: all gave the same in every one of {found.replications:,} replications. The probability "
            f"that they differ is at most {1 - least_tie:.2g}."
        )
        if not math.isfinite(least.half_width):
            text += " All returns were zero, so nothing is known of how large a difference can be."
        return _paragraph(text)
    if found.status is Verdict.PRECISE:
        width = max(gap.half_width for gap in found.gaps)
        shown = "and is shown best" if least.mean_interval.lower > 0 else f"but {rival} may be as good"
        return _paragraph(f"Every gap is known to ± {_number(width, width)}. {best} has the {highest} mean, {shown}.")
    if found.status is Verdict.BEST:
        lead = least.mean_interval.lower
        costs = "costs " if found.minimise else ""
        return _paragraph(f"{best} is the best: {costs}on average at least {_number(lead, lead)} {more}.")
    if found.status is Verdict.CLOSE:
        assert found.indifference is not None
        lost = max(0.0, -least.mean_interval.lower)
        return _paragraph(
            f"{best} will do: whichever is the best, it {gives} at most {_number(lost, lost)} {more} on average, and "
            f"{_number(found.indifference, found.indifference)} did not matter."
        )
    when = f"after {found.replications:,} replications"
    if found.status is Verdict.TIME:
        when = f"when the time was up, {when}"
    room = found.indifference or 0.0
    close = [other for gap, other in zip(gaps, others, strict=True) if gap.mean_interval.lower <= -room] or [rival]
    return _paragraph(
        f"Undecided {when}: {best} has the {highest} mean, but {_list(close)} may "
        f"{gives[:-1]} up to {_number(-least.mean_interval.lower, least.half_width)} {more}. Allow more "
        f"{'time' if found.status is Verdict.TIME else 'replications'}, or a larger half width or indifference."
    )


def _rarely(found: Compared) -> list[str]:
    """A word of warning where hardly anything differed: what has not been seen may decide."""
    least, rival = min(((found.advantage(other), other) for other in found.others), key=lambda pair: pair[0].differing)
    if found.is_exact or least.differing >= FEW:
        return []
    rare = (
        f"An event rarer than 1 in {_third(found.replications):,} may well be missing from them (the rule of three, "
        "95 %), and decide."
    )
    if 2 * least.differing > found.replications:
        return [_paragraph(f"Mind what is rare: these are {found.replications:,} replications only. {rare}")]
    seen = f"only {least.differing} of" if least.differing else "none of"
    return [
        _paragraph(
            f"Mind what is rare: in {seen} {found.replications:,} replications did the gap to {rival} differ "
            f"from its usual {_number(float(np.median(least.gaps)), 0.0)}. {rare}"
        )
    ]


def _third(replications: int) -> int:
    return max(1, round(replications / 3))


def _often(found: Compared) -> str:
    """A word of warning where the best on average is not the one that is best most of the time."""
    often = max(found.alternatives, key=lambda each: each.best)
    best = found.alternatives[found.best_index]
    if often.best_interval.lower <= best.best_interval.upper:
        return ""
    return _paragraph(
        f"Best on average is not best most of the time: {often.label} has the {_words(found).first} in "
        f"{often.best:.0%} of the replications, {best.label} in {best.best:.0%}."
    )


def cost(found: Compared) -> str:
    """What was sampled, and what sharing the noise saved."""
    text = f"Sampled: {found.replications:,} replications of each in {found.seconds:.1f} s"
    text += f", seed {found.seed}." if found.seed is not None else "."
    if len(found.whole) < found.replications:
        text += (
            f" {len(found.whole):,} of them went on after their branches had become one, for what returns have in "
            "common from there on; what is rarer than in one of them may be missing from mean returns."
        )
    alone = found.replications_unpaired
    if found.sharing == "none" or all(gap.std_unpaired == 0 for gap in found.gaps):
        return text
    if math.isinf(alone):
        return f"{text} With independent noise no number of replications would reach the same precision."
    share = 1 - found.replications / alone
    if share > 0:
        return (
            f"{text} With independent noise the same answer would take about {_round(alone):,}: sharing the noise "
            f"saved {share:.1%}."
        )
    return f"{text} Sharing the noise did not pay here: with independent noise about {_round(alone):,} would do."


def guarantee(found: Compared) -> str:
    """What is promised of the intervals."""
    text = (
        f"Promised: all intervals of gaps hold together with probability {found.confidence:g}, and so do all others "
        "together, whenever sampling stops; "
    )
    if found.is_exact:
        return text + "for every number of replications, from the bounds given on the returns."
    return text + (
        "approximately, as is true of Student's interval. Where fewer than 30 replications differ, it is assumed that "
        "no unseen gap is larger than the range of the returns. No sample excludes what happens less than once in "
        f"{_third(found.replications):,} replications (the rule of three, 95 %) and outweighs all the rest."
    )


def _legend(found: Compared) -> str:
    sharings = {"std_state": "with noise shared in the same state", "std_time": "with noise shared at the same time"}
    kinds = [text for name, text in sharings.items() if any(getattr(gap, name) is not None for gap in found.gaps)]
    words = _words(found)
    return (
        f"± is the standard deviation of one {words.amount} or one gap: {_list(['with independent noise', *kinds])}"
        f"{_beside(found)}. P(better) counts replications in which it "
        f"{words.gives} {words.more}, P(tie) those in which both give exactly the same; P(best) shares equal "
        "firsts equally."
    )


def _beside(found: Compared) -> str:
    """How many replications stand behind the kinds of sharing that were only looked at."""
    if not found.beside or found.beside >= found.replications:
        return ""
    return f" (what was not sampled itself: from {found.beside:,} replications)"


def _alternative_rows(found: Compared) -> list[list[str]]:
    rows = [["", f"mean {_words(found).amount}", "± one run", "P(best)"]]
    for each in found.alternatives:
        scale = each.mean_interval.width / 2
        rows.append(
            [
                each.label,
                f"{_number(each.mean, scale)} {_ends(each.mean_interval, scale)}",
                _number(each.std, each.std),
                f"{each.best:.3f} {_chances(each.best_interval)}",
            ]
        )
    return rows


def _gap_rows(found: Compared) -> list[list[str]]:
    """The best alternative against each other one; every pair is in `table()`."""
    words = _words(found)
    head = [f"{found.best_label} instead of", f"{words.gives} {words.more}", "± independent"]
    gaps = [found.advantage(other) for other in found.others]
    kinds = [("± same state", "std_state"), ("± same time", "std_time")]
    kinds = [(words, name) for words, name in kinds if any(getattr(gap, name) is not None for gap in gaps)]
    rows = [[*head, *(words for words, _ in kinds), "P(better)", "P(tie)"]]
    for gap, other in zip(gaps, found.others, strict=True):
        deviations = [gap.std_unpaired, *(getattr(gap, name) for _, name in kinds)]
        rows.append(
            [
                other,
                f"{_number(gap.mean, gap.half_width)} {_ends(gap.mean_interval, gap.half_width)}",
                *("" if value is None else _number(value, value) for value in deviations),
                f"{gap.better:.3f} {_chances(gap.superiority())}",
                _tie(gap),
            ]
        )
    return rows


def _tie(gap: PairedGap) -> str:
    certain = float(np.mean((gap.gaps == 0) & (gap.slack == 0)))
    if certain == gap.tied:
        return "0" if certain == 0 else f"{certain:.3f}"
    return f"{certain:.3f} to {gap.tied:.3f}"  # the rest are too close to tell: rounding, or an end that was cut


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _number(value: float, precision: float) -> str:
    """`value` with two digits of `precision`."""
    if value == 0:
        return "0"
    if not math.isfinite(value) or not math.isfinite(precision) or precision <= 0:
        return f"{value + 0.0:.6g}"
    digits = 1 - math.floor(math.log10(precision))
    found = f"{value:.{min(max(digits, 0), 12)}f}" if abs(value) < 1e9 else f"{value:.6g}"
    return found if float(found) != 0 else f"{value:.1g}"  # what is not zero does not look like it


def _ends(interval: Interval, precision: float) -> str:
    """An interval rounded outwards: what is printed holds what was found."""
    if not precision > 0 or not math.isfinite(precision):
        return f"[{interval.lower + 0.0:.6g}, {interval.upper + 0.0:.6g}]"
    digits = min(max(1 - math.floor(math.log10(precision)), 0), 12)
    unit = 10.0**-digits
    lower, upper = math.floor(interval.lower / unit) * unit, math.ceil(interval.upper / unit) * unit
    return f"[{lower:.{digits}f}, {upper:.{digits}f}]"


def _chances(interval: Interval) -> str:
    return f"[{math.floor(interval.lower * 1000) / 1000:.3f}, {math.ceil(interval.upper * 1000) / 1000:.3f}]"


def _round(count: float) -> int:
    """Two digits of a number that is not known better."""
    scale = 10 ** max(0, math.floor(math.log10(max(count, 1.0))) - 1)
    return round(count / scale) * scale


def _list(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
