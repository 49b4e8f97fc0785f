"""An agent's actions, each against the best of the others, on the same noise: in given states, or along an episode.

In every state all actions are compared, each followed by the agent (`compare`). The best of the others is picked from
the same sample, which costs nothing: intervals of all pairs hold together. So do the statements about all states: each
comparison gets its part of the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jointmdp.decisions.comparing.compare import compare
from jointmdp.decisions.comparing.comparison import Comparison, PairedGap
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace, aligned, upstairs
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.simulation.simulators.agents_with_memory import with_memories
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.registry import as_simulator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Shown = Literal["chosen", "other", "same", "open"]
WORDS: dict[Shown, str] = {
    "chosen": "the agent's is better",
    "other": "the other is better",
    "same": "too close to matter",
    "open": "not shown",
}
FEW_ENOUGH = 2_000  # replications of one state, by default: there are many states


@dataclass(frozen=True, eq=False)
class ReviewedState:
    """What the agent does in one state, beside the best of the other actions."""

    step: int
    """Of the episode, or the state's place in the list that was given."""
    chosen: str
    other: str
    """The action that is best on average among the others."""
    gap: PairedGap
    """By how much the chosen action is better than the other: positive where the agent is right."""
    comparison: Comparison
    """Of all actions."""

    @property
    def shown(self) -> Shown:
        """Which of the two is shown better, whether they are too close to matter, or that nothing is shown yet."""
        mean, room = self.gap.mean_interval, self.comparison.indifference or 0.0
        if mean.lower > 0 or mean.upper < 0:
            return "chosen" if mean.lower > 0 else "other"
        return "same" if max(-mean.lower, mean.upper) <= room else "open"


@dataclass(frozen=True, repr=False, eq=False)
class AgentReview(ResultFace):
    """An agent's actions beside the best of the others; ``print(review)`` explains it."""

    name: str
    """Of the simulator."""
    states: tuple[ReviewedState, ...]
    length: int | None
    """Steps of the episode; None where the states were given."""
    confidence: float
    """With which all statements about all states hold together."""

    def which(self, shown: Shown) -> list[ReviewedState]:
        """The states with this outcome."""
        return [state for state in self.states if state.shown == shown]

    @property
    def sentence(self) -> str:
        """The answer."""
        where = "" if self.length is None else f" along an episode of {self.length} steps"
        wrong, k = self.which("other"), len(self.states)
        text = f"In {len(wrong)} of {k} state{'s' * (k > 1)}{where} another action is shown better than the agent's"
        if wrong:
            worst = min(wrong, key=lambda state: state.gap.mean)
            mean = -float(np.mean([state.gap.mean for state in wrong]))
            text += (
                f", on average by {mean:.3g}; the most in step {worst.step}: {worst.other} instead of {worst.chosen}, "
                f"by {-worst.gap.mean:.3g} {-worst.gap.mean_interval:.3g}"
            )
        parts = (
            (len(self.which("chosen")), "the agent's is shown best"),
            (len(self.which("same")), "the difference is too small to matter"),
            (len(self.which("open")), "nothing is shown"),
        )
        rest = ", ".join(f"in {count} {words}" for count, words in parts if count)
        return f"{text}. {rest[:1].upper()}{rest[1:]}{'.' * bool(rest)}".rstrip()

    def table(self) -> list[dict[str, Any]]:
        """One row for each state."""
        return [
            {
                "step": state.step,
                "chosen": state.chosen,
                "other": state.other,
                "mean": state.gap.mean,
                "mean_interval": state.gap.mean_interval,
                "superiority": state.gap.superiority(),
                "inferiority": state.gap.inferiority(),
                "shown": state.shown,
                "replications": state.comparison.num_replications,
            }
            for state in self.states
        ]

    def figure(self) -> Figure:
        """By how much the agent's action is better than the best other one, in every state."""
        drawn: Figure = upstairs("show.plots.result_plots", "review")(self).figure
        return drawn

    def __repr__(self) -> str:
        rows = [["step", "the agent", "best other", "how much better the agent's is", "P(better)", ""]]
        for state in self.states:
            mean = f"{state.gap.mean:.3g} {state.gap.mean_interval:.3g}"
            rows.append(
                [str(state.step), state.chosen, state.other, mean, f"{state.gap.superiority():.2f}", WORDS[state.shown]]
            )
        careful = dict.fromkeys(text for state in self.states for text in state.comparison.warnings)
        return "\n".join(
            [
                f"{self.sentence}",
                *(f"Careful: {text}" for text in careful),
                "",
                *aligned(rows),
                "",
                f"{self.name}: each action is followed by the agent, on the same noise. All intervals of means hold "
                f"together with {self.confidence:.0%} confidence.",
            ]
        )


def review_agent(
    source: Any,
    policy: Any,
    states: int | Sequence[Any] = 20,
    *,
    actions: Sequence[Any] | None = None,
    steps: int = 1_000,
    confidence: float = 0.95,
    seed: int = 0,
    **settings: Any,
) -> AgentReview:
    """Whether another action would have been better than the agent's, how much and how often, on the same noise.

    Args:
        source: a simulator, or whatever `jointmdp.as_simulator` takes: a Gymnasium environment, a model.
        policy: the agent, in any form; one of Stable-Baselines3 as it is, with the `VecNormalize` and `VecFrameStack`
            of its ``env``, and with its memory where it has one.
        states: how many, spread evenly over one episode of the agent; or a list of states, such as
            ``[simulator.capture(env, observation)]``.
        actions: the others to compare with; by default all that are available.
        steps: where an episode that is longer is cut.
        confidence: with which all statements about all states hold together.
        seed: of the episode, and of the replications.
        settings: of `jointmdp.compare`: horizon, discount, indifference, executor and so on. `max_replications` is
            2,000 for each state by default.
    """
    simulator, (choose,), _ = with_memories(as_simulator(source), [policy], None)
    error = 1 - checks.as_fraction("confidence", confidence)
    most = checks.as_count("steps", steps)
    length = None
    if isinstance(states, int | np.integer):
        count = checks.as_count("states", states)
        # Twice the same episode: once for its length, since keeping all its states could take much memory.
        length = sum(action is not None for _, action in islice(simulator.path(choose, seed), most))
        if length == 0:
            raise ModelError(f"the episode of {simulator.name} is over where it starts (seed {seed})")
        asked = set(np.linspace(0, length - 1, min(count, length)).round().astype(int).tolist())
        episode = enumerate(islice(simulator.path(choose, seed), length))
        places = ((step, place, action) for step, (place, action) in episode if step in asked)
    else:
        asked = set(range(len(states)))
        given = [simulator.snapshot(state) for state in states]
        places = ((i, place, choose(place, Noise("walk policy", seed, i))) for i, place in enumerate(given))
    if not asked:
        raise ModelError("no states were given; give some, or how many of an episode")
    options = {"max_replications": FEW_ENOUGH, **settings, "seed": seed, "confidence": 1 - error / len(asked)}
    found: list[ReviewedState] = []
    with Meter("reviewing the agent") as meter:
        for step, place, action in places:
            own: Any = action
            others = simulator.available(place) if actions is None else actions
            if simulator.action_names is None:
                first = [own, *(each for each in others if not np.array_equal(each, own))]
            else:  # numbered ones by their names
                numbers = others if actions is None else [simulator.action_index(each, place) for each in others]
                first = list(dict.fromkeys(map(simulator.action_label, [own, *numbers])))
            comparison = compare(simulator, policy, place, first, **options)
            chosen, *rest = comparison.labels  # what was chosen stands first
            gap = min((comparison.gap(chosen, other) for other in rest), key=lambda gap: gap.mean)
            found.append(ReviewedState(step, chosen, gap.other, gap, comparison))
            meter.update(len(found) / len(asked), f"{len(found)} of {len(asked)} states")
    return AgentReview(simulator.name, tuple(found), length, confidence)
