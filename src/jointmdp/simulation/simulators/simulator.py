"""The simulator protocol: snapshots of states, queries of several actions under one draw of the noise, and policies.

Everything that samples (pair Monte Carlo, `compare`, the auditor, the incremental methods) asks a simulator through
these few methods, and a tabular `JointMDP` is one of its implementations. A query with one action is the paper's
1-JSTM, with two the 2-JSTM, with m the m-JSTM.

Branches in the same state share their noise under ``sharing="state"``, so a simulator has to say which states are the
same: `Simulator.identity`, by default a hash of the whole snapshot. That states of continuous models never meet again
is normal; then only ``sharing="time"``, the same noise for every branch at the same time, keeps the noise shared.
"""

import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, refuse_traced
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.model.inverse_sampling import drawn_from
from jointmdp.model.policies import depends_on_time, looks_timed
from jointmdp.simulation.simulators.agent_views import TimedAgent, View, own_copy, row_of
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.noise import Noise

Snapshot = Any
Action = Any
Agent = Callable[[Snapshot, Noise], Action]
PolicyForm = Literal["uniform", "constant", "predicting", "function", "table", "none"]

FORMS = (
    "a function f(observation) -> action or probabilities, or f(observation, rng) -> action, an array [S, A] or [S] "
    'indexed by the observation, a function f(time, observation), an object with predict(observation), "uniform", or '
    "one action to take for ever"
)


class Outcome(NamedTuple):
    """What one action gives: its reward and the state it leads to."""

    reward: float
    state: Snapshot


class Draws(NamedTuple):
    """Samples of a query: what several actions give under the same noise."""

    rewards: Floats  # [N, m]
    states: list[tuple[Snapshot, ...]]  # N rows of m


class Simulator(ABC):
    """A simulator that can be asked what several actions give in one state under the same noise.

    A subclass writes `start` and `step`; the rest has defaults. Snapshots are opaque values: no method may change one.
    """

    name: str = "simulator"
    discount: float = 1.0
    sharing: Sharing = "time"
    action_names: tuple[str, ...] | None = None
    """One name per action for actions 0, 1, 2, …; None where actions are not numbered (continuous ones)."""
    action_values: tuple[Any, ...] | None = None
    """What the environment calls its numbered actions; None: 0, 1, 2, … as here."""
    reward_bounds: Interval | None = None
    """What every reward is claimed to lie in."""
    refuses_unavailable: bool = True
    """Whether a policy may take `available` actions alone. Gymnasium's masks are advice: others have a meaning too."""
    reseeds: bool = True
    """Whether each step takes its noise from what it is given alone, so that draws of earlier steps shift nothing."""

    frozen_noise: str = ""
    """What was seen of randomness that the noise given to a step does not reach, in a sentence; empty if nothing."""

    def _describe(self, name: str, discount: float, sharing: Sharing, bounds: tuple[float, float] | None) -> None:
        """Set what every simulator has, checked."""
        self.name, self.discount, self.sharing = name, checks.as_discount(discount), checks.as_sharing(sharing)
        self.reward_bounds = None if bounds is None else Interval(*map(float, bounds))

    @abstractmethod
    def start(self, noise: Noise) -> Snapshot:
        """A state to begin in."""

    @abstractmethod
    def step(self, state: Snapshot, action: Action, noise: Noise) -> Outcome:
        """What `action` gives in `state`, with all randomness taken from `noise`; never called where `is_over`."""

    def query(self, state: Snapshot, actions: Sequence[Action], noise: Noise) -> list[Outcome]:
        """What each of `actions` gives in `state` under the same noise; a state that is over stays and pays 0.

        Actions are given as `action_index` and `available` give them: by their numbers here, or by name.
        """
        if self.is_over(state):
            return [Outcome(0.0, state) for _ in actions]
        return [self.step(state, self._numbered(action), noise.fresh()) for action in actions]

    def observe(self, state: Snapshot) -> Any:
        """What a policy sees of `state`; the same for states that are the same."""
        return state

    def is_over(self, state: Snapshot) -> bool:
        """Whether the episode has ended in `state`: nothing is paid from there on."""
        return False

    def identity(self, state: Snapshot) -> Hashable:
        """Equal for states that are the same."""
        return fingerprint(state)

    def available(self, state: Snapshot) -> Sequence[Action]:
        """The actions that can be taken in `state`."""
        if self.action_names is None:
            raise ModelError(
                f"the actions of {self.name} are not numbered; name those that you want to compare, as in "
                "actions=[first, second]"
            )
        return range(len(self.action_names))

    def random_action(self, rng: np.random.Generator) -> Action:
        """An action of the uniform policy."""
        if self.action_names is None:
            raise ModelError(f"the actions of {self.name} are not numbered, so a uniform policy is not defined")
        return int(rng.integers(len(self.action_names)))

    def policy_draw(self, noise: Noise) -> Any:
        """What a policy ``f(observation, rng)`` draws its action from."""
        return noise.rng

    def reset(self, seed: int = 0) -> Snapshot:
        """The starting state of a seed."""
        return self.start(Noise("start", checks.as_count("seed", seed, 0)))

    def snapshot(self, state: Any) -> Snapshot:
        """A snapshot from what a user calls a state: one of `reset`, `walk` or `at`, or what `at` takes."""
        at = getattr(self, "at", None)
        return state if at is None else at(state)

    def sample(self, state: Snapshot, actions: Sequence[Action], num_samples: int, seed: int = 0) -> Draws:
        """Independent samples of a query."""
        count = checks.as_count("num_samples", num_samples)
        seed = checks.as_count("seed", seed, 0)
        place = self.snapshot(state)
        chosen = [self.action_index(action) for action in actions]
        rows = [self.query(place, chosen, Noise("query", seed, i)) for i in range(count)]
        rewards = np.array([[outcome.reward for outcome in row] for row in rows], dtype=np.float64)
        return Draws(rewards, [tuple(outcome.state for outcome in row) for row in rows])

    def walk(self, policy: Any, steps: int, seed: int = 0) -> Snapshot:
        """The state after `steps` steps under a policy from the start; earlier where the episode ends."""
        path = self.path(as_agent(policy, self), seed)
        for state, _ in itertools.islice(path, checks.as_count("steps", steps, 0) + 1):  # noqa: B007 - the last one
            pass
        return state

    def path(self, choose: Agent, seed: int = 0) -> Iterator[tuple[Snapshot, Action | None]]:
        """The states of one episode and what the agent does in each; None where it is over."""
        state = self.reset(seed)
        for t in itertools.count():
            if self.is_over(state):
                yield state, None
                return
            action = choose(state, Noise("walk policy", seed, t))
            yield state, action
            (outcome,) = self.query(state, [action], Noise("walk", seed, t))
            state = outcome.state

    def action_label(self, action: Action) -> str:
        """How to call `action`."""
        if self.action_names is not None and isinstance(action, int | np.integer):
            return self.action_names[int(action)]
        return str(action)

    def action_value(self, action: Action) -> Any:
        """What the environment calls an action that is numbered here; other actions as they are."""
        return action if self.action_values is None else self.action_values[action]

    def action_index(self, action: Action, state: Snapshot | None = None) -> Action:
        """The number that an action has here, from its name or from what the environment calls it, checked.

        Actions that are not numbered stay as they are.
        """
        names = self.action_names
        is_number = type(action) is int and self.action_values is None  # by far the most frequent, in every step
        if names is not None and not (is_number and str(action) not in names):
            values = range(len(names)) if self.action_values is None else self.action_values
            action = checks.as_called("action", action, names, values)
        return self._numbered(action, state)

    def _numbered(self, action: Action, state: Snapshot | None = None) -> Action:
        """An action by its number here, or its name, checked."""
        if self.action_names is None:
            return action
        found = checks.as_index("action", action, self.action_names, len(self.action_names))
        if state is not None and found not in self.available(state):
            raise ModelError(f"{self.action_label(found)} is not available in this state of {self.name}")
        return found


def as_action_names(actions: Sequence[Any] | int | None) -> tuple[str, ...] | None:
    """The names of actions, which may be given by how many there are."""
    if isinstance(actions, int | np.integer):
        return tuple(f"action {a}" for a in range(checks.as_count("actions", actions)))
    return None if actions is None else checks.as_names("action", actions, len(actions))


def as_step(found: Any, name: str) -> tuple[Any, Any, Any]:
    """Reward, next state and whether the episode is over there, as a user's function returns them."""
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        raise ModelError(f"{name} must return (reward, next_state) or (reward, next_state, is_over), not {found!r}")
    return found[0], found[1], found[2] if len(found) == 3 else False


def as_agent(policy: Any, simulator: Simulator) -> Agent:
    """A policy in any of its forms as ``choose(state, noise) -> action``.

    What it sees is ``simulator.observe(state)``.

    - ``f(observation) -> probabilities``; where it returns one action instead, that is taken.
    - ``f(observation, rng) -> action`` draws by itself from the generator that it is given; for JAX simulators that
      is a key.
    - An array: ``[S, A]`` probabilities or ``[S]`` actions, for observations that are state numbers.
    - ``f(time, observation)`` or an array ``[T, S, A]``, where the simulator keeps the time (`with_memories`).
    - An object with ``predict`` (as in Stable-Baselines3), asked for its deterministic action, behind the
      `VecNormalize` of its ``env``. For its stochastic ones wrap it, and let it draw from the generator: its own would
      break the pairing.
    - ``"uniform"``, or the name or number of one action to take for ever.

    Actions are called what the environment calls them (`Simulator.action_value`), or by their names.
    """
    form, value = policy_form(policy, simulator)
    names = simulator.action_names
    if form == "none":
        listed = names if isinstance(policy, str) else None
        known = f"; its actions are {', '.join(listed[:8])}{'…' * (len(listed) > 8)}" if listed else ""
        raise ModelError(f"the policy is {policy!r}; give {FORMS}{known}")
    if form == "constant":
        return lambda state, noise: _allowed(value, state, simulator)
    if form == "uniform" and names is None:
        simulator.random_action(np.random.default_rng(0))  # refused here, and not in the middle of a walk
        return lambda state, noise: simulator.random_action(noise.rng)
    view = View.of(value) if form == "predicting" else None
    gives_action = (view is not None and not view.gives_law) or (form == "function" and takes_rng(value))

    def choose(state: Snapshot, noise: Noise) -> Action:
        if form == "uniform":
            actions = simulator.available(state)
            return actions[int(noise.uniform * len(actions))]
        observation = simulator.observe(state)
        if view is not None:
            found = view.predict(observation)
        elif form == "table":
            found = row_of(value, observation)
        else:
            seen = own_copy(observation)
            found = value(seen, simulator.policy_draw(noise)) if gives_action else value(seen)
        return as_choice(found, state, simulator) if gives_action else drawn_choice(found, state, simulator, noise)

    return choose


def drawn_choice(found: Any, state: Snapshot, simulator: Simulator, noise: Noise) -> Action:
    """An action that a policy chose, or one drawn from the probabilities that it gave."""
    names = simulator.action_names
    if names is None or np.ndim(found) == 0:
        return as_choice(found, state, simulator)
    # By inversion: one uniform a decision, whatever the probabilities.
    row = np.asarray(found, dtype=np.float64).ravel().tolist()
    if len(row) != len(names):
        many = f"{len(row)} probabilities for the {len(names)} actions"
        raise ModelError(f"the policy gave {many} of {simulator.name}")
    total = 0.0
    for chance in row:  # `sum` rounds in another way from Python 3.12 on
        total += chance
    if not min(row) >= 0 or not abs(total - 1) <= checks.SUM_TOLERANCE:
        raise ModelError(
            f"the policy gave {np.array2string(np.array(row), precision=4, threshold=8)} with sum {total:.6g}, no "
            "probabilities; did you return values or logits?"
        )
    most = max(row)
    action = row.index(most) if most >= 1 else drawn_from(row, noise.uniform * total)
    return _allowed(action, state, simulator)


def policy_form(policy: Any, simulator: Simulator) -> tuple[PolicyForm, Any]:
    """The form of a policy, and the action, object, function or array that it consists of."""
    names = simulator.action_names
    if isinstance(policy, str):
        if policy in (names or ()):
            return "constant", simulator.action_index(policy)
        return ("uniform" if policy == "uniform" else "none"), policy
    if isinstance(policy, int | np.integer) and not isinstance(policy, bool):
        return "constant", simulator.action_index(int(policy))
    owner = getattr(policy, "__self__", None)
    if getattr(policy, "__name__", "") == "predict" and callable(getattr(owner, "predict", None)):
        return "predicting", owner  # model.predict is meant as the model
    if callable(getattr(policy, "predict", None)):
        return "predicting", policy
    if looks_timed(policy):
        return "predicting", TimedAgent(policy)
    if callable(policy):
        return "function", policy
    if names is not None and depends_on_time(policy):
        return "predicting", TimedAgent(np.asarray(policy))
    try:
        array = np.asarray(policy)
    except (TypeError, ValueError) as error:
        refuse_traced("the policy", error)
        return "none", policy
    if array.dtype.kind in "US" and array.ndim == 1:
        array = np.array([simulator.action_index(name) for name in array.tolist()])
    is_table = array.dtype.kind in "fiub" and array.ndim in (1, 2) and names is not None
    return ("table" if is_table else "none"), array


def as_choice(found: Any, state: Snapshot, simulator: Simulator) -> Action:
    """What a policy chose, as an action that can be taken in the state."""
    if simulator.action_names is None:
        return found
    scalar = found.item() if hasattr(found, "item") else found
    if isinstance(scalar, float) and scalar.is_integer():
        scalar = int(scalar)
    try:
        action = simulator.action_index(scalar)
    except ModelError as error:
        raise ModelError(f"the policy chose {found!r}: {error}") from None
    return _allowed(action, state, simulator)


def _allowed(action: Action, state: Snapshot, simulator: Simulator) -> Action:
    """An action of a policy, if it can be taken in the state."""
    is_limited = simulator.refuses_unavailable and simulator.action_names is not None
    if is_limited and action not in simulator.available(state):
        raise ModelError(
            f"the policy chose {simulator.action_label(action)}, which is not available in this state of "
            f"{simulator.name}; let it choose among simulator.available(state)"
        )
    return action


def takes_rng(policy: Callable[..., Any]) -> bool:
    """Whether a policy is ``f(observation, rng)``: it must be given two positional arguments."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        listed = [p for p in inspect.signature(policy).parameters.values() if p.kind in positional]
    except (TypeError, ValueError):
        return False
    # An rng with a default is still meant to be given: without it draws would not be reproducible.
    return sum(p.default is p.empty or p.name in ("rng", "key") for p in listed) >= 2
