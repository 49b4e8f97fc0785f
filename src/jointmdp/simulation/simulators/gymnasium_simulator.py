"""Any Gymnasium environment as a simulator: several actions from one state, under the same noise.

Three things make an environment a simulator: its state can be restored (`gymnasium_states`), all its randomness comes
from the noise that a step is given (`gymnasium_noise`), and the end of an episode absorbs. The first two are tried out
when it is wrapped.
"""

from __future__ import annotations

import contextlib
import copy
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground import checks
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.watchdog import limited
from jointmdp.simulation.simulators import fingerprints
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.generators import global_states, kept_globals, seed_globals
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Outcome, Simulator

try:
    import gymnasium
except ImportError as error:
    raise ImportError(
        "GymnasiumSimulator needs gymnasium, which is not installed: pip install 'jointmdp[gymnasium]'"
    ) from error

from gymnasium import Env, spaces
from gymnasium.wrappers import TimeLimit

from jointmdp.simulation.simulators import gymnasium_wrappers as stack
from jointmdp.simulation.simulators.gymnasium_noise import PlainNoise, SeedNoise, SpaceWatch, Streams, discovered, named
from jointmdp.simulation.simulators.gymnasium_states import (
    Arrival,
    CopyKeeper,
    Keeper,
    LiveKeeper,
    PhysicsState,
    Place,
    ReplayKeeper,
    TableState,
    clone,
    is_physics,
    is_stock_table,
    model_bytes,
    moved,
    moved_under,
    restore,
)
from jointmdp.simulation.simulators.gymnasium_wrappers import (
    EnvState,
    Unseen,
    attempt,
    copied_value,
    levels,
    named_errors,
)

Kind = Literal["table", "mujoco", "copy", "replay", "hooks"]
DrawAction = Callable[[np.random.Generator, dict[str, Any]], Any]
"""A random action as the environment takes it, from a generator and the last ``info`` (which may hold a mask)."""
Trace = list[bytes]  # a hash of what was seen at each step
TRIAL_EPISODES, TRIAL_STEPS = 2, 10
SLOW, SLOW_STEPS = 0.3, 3  # seconds of a trial episode from which on less is tried
MOST_REPEATED = 32  # steps that are taken again rather than copied before each
LIVE_EPISODES, LIVE_STEPS, EARLIER_STEPS = 3, 40, 5
LIVE_SECONDS, LEAST_LIVE_STEPS = 0.3, 3  # for the steps of live episodes; a slow environment is tried out for fewer
SEED = 7_654_320  # of live episodes, and one more: a number that nobody holds by chance
SLOW_LIVE = 2.0  # seconds of live episodes from which on one comparison has to do


class GymnasiumSimulator(Simulator):
    """A Gymnasium environment that can be asked what several actions give in one state under the same noise.

    Args:
        env: an environment, or its id, ``"CartPole-v1"`` or ``"minigrid:MiniGrid-Empty-5x5-v0"``. One that can be
            copied stays yours; any other is taken over: do not step it yourself.
        settings: what `gymnasium.make` is given beside the id.
        get_state, set_state: your own way to read and write the state, ``get_state(env) -> value`` and
            ``set_state(env, value)``. The state of wrappers (a time limit's count) travels by itself.
        identity: equal values for states that are the same, as a function of what ``get_state`` returns; without
            hooks, of the environment in that state. By default a hash of all there is.
        streams: the names of the random generators that every step is to re-seed, as attributes of the environment,
            ``["np_random", "arrivals.rng"]``; by default all that are found. ``np_random`` is always among them.
        time_limit: whether Gymnasium's time limit ends the episode; without it the limit is taken away.
        state: how the state is kept; by default the first that works:

            - ``"table"``: the state number of Gymnasium's own toy-text environments;
            - ``"mujoco"``: a copy of the physics;
            - ``"copy"``: a deep copy of the environment, tried out before it is used;
            - ``"replay"``: the history since the start, replayed whenever the state is restored. The cost of a step
              then grows with its time, and states are the same only if their histories are.

        action_names: one name for each numbered action; by default as the environment calls them.
        reward: for environments that pay several numbers at once: how much each counts, or a function of them.
        discount, sharing, reward_bounds: see `Simulator`.
    """

    refuses_unavailable = False
    trial_seconds: float = 60.0
    """How long the trial of a new environment may take: some wait for what never comes."""

    def __init__(  # many parameters: a front door, one keyword for each setting
        self,
        env: Env[Any, Any] | str,
        *,
        settings: Mapping[str, Any] | None = None,
        get_state: Callable[[Any], Any] | None = None,
        set_state: Callable[[Any, Any], None] | None = None,
        identity: Callable[[Any], Hashable] | None = None,
        streams: Iterable[str] | None = None,
        time_limit: bool = True,
        discount: float = 1.0,
        sharing: Sharing = "time",
        reward_bounds: tuple[float, float] | None = None,
        state: Kind | None = None,
        action_names: Sequence[Any] | None = None,
        reward: Callable[[Any], float] | Sequence[float] | None = None,
    ) -> None:
        found = stack.made(env, settings)
        name = found.spec.id if isinstance(found, Env) and found.spec is not None else type(found).__name__
        self._describe(name, discount, sharing, reward_bounds)
        self._score, self._time_limit = reward, time_limit
        self.env = self._own(found)
        self._identity = identity
        self._space = self.env.action_space
        if isinstance(self._space, spaces.Discrete):
            count, first = int(self._space.n), int(self._space.start)
            values = range(first, first + count)  # what the environment calls them
            own = checks.as_names("action", action_names, count) or stack.known_names(self.env, count)
            self.action_names = own or tuple(f"action {value}" for value in values)
            self.action_values = tuple(values) if first else None
        elif action_names is not None:
            raise ModelError(f"action_names are for numbered actions, but those of {self.name} are {self._space}")
        with warnings.catch_warnings():
            # The user did not ask for a trial, and need not see its warnings.
            warnings.simplefilter("ignore")
            taken, is_safe = self.env, stack.copy_fault(self.env) is None
            if is_safe and get_state is None and not isinstance(env, str):
                self.env = attempt(lambda: stack.twin(taken)) or taken
            self.env.unwrapped.render_mode = None
            # Tried out on a copy where there is one, since some wrappers keep a memory of earlier episodes.
            self._origin = attempt(lambda: copy.deepcopy(self.env)) if is_safe else None
            scratch = (attempt(lambda: stack.twin(self.env)) if is_safe else None) or self.env
            late = (
                f"{self.name} did not come back from a reset or a step within {self.trial_seconds:g} s, when it was "
                "tried out; what does it wait for? Where it is only slow: GymnasiumSimulator.trial_seconds = 600"
            )
            with limited(self.trial_seconds, late), named_errors(self.name, stack.TRIAL):
                found_streams, self._first_trial = explored(scratch, self._draw)
                self._streams = found_streams if streams is None else named(scratch, streams)
                self._keeper, self.state_reason = self._choose_keeper(state, get_state, set_state, scratch, taken)
                self.frozen_noise = attempt(self._unreached_noise) or ""
            del self._first_trial
        if self.frozen_noise:
            warnings.warn(self.frozen_noise, stacklevel=2)
        if reward_bounds is None and self._table is not None and self._is_bare:
            self.reward_bounds = self._table.reward_bounds

    @classmethod
    def make(cls, id: str, **settings: Any) -> GymnasiumSimulator:
        """The simulator of ``gymnasium.make(id, **settings)``."""
        return cls(id, settings=settings)

    def start(self, noise: Noise) -> EnvState:
        """A reset with all streams started from the noise."""
        with named_errors(self.name, f"reset(seed={noise.seed})"):
            return self._arrived(self._keeper.start(noise))

    def reset(self, seed: int = 0) -> EnvState:
        """The start that ``env.reset(seed=seed)`` gives."""
        return self.start(SeedNoise(checks.as_count("seed", seed, 0)))

    def step(self, state: EnvState, action: Action, noise: Noise) -> Outcome:
        """The environment's own step from `state`, with all streams started from the noise."""
        own = self._as_action(action)
        try:
            found = self._keeper.step(state.kept, own, noise)
            return Outcome(found.reward, self._arrived(found))
        except Exception as error:
            raise stack.named_error(error, self.name, f"step({own!r})") from error

    def query(self, state: EnvState, actions: Sequence[Action], noise: Noise) -> list[Outcome]:
        """What each of `actions` gives in `state` under the same noise; a state that is over stays and pays 0."""
        if len(actions) > 1 and not state.is_over:
            self._keeper.hold(state.kept)
        return super().query(state, actions, noise)

    def observe(self, state: EnvState) -> Any:
        """What the environment returned when it came there."""
        if state.observation is Unseen:
            raise ModelError(f"what {self.name} showed in this state is not known; give it: capture(env, observation)")
        return state.observation

    def is_over(self, state: EnvState) -> bool:
        """Whether the episode was terminated or, at a time limit, truncated."""
        return state.is_over

    def identity(self, state: EnvState) -> Hashable:
        """The user's, or a hash of all that is kept of the state."""
        if self._identity is not None:
            # The end of an episode is the end, however it looks from inside.
            return self._identity(self._keeper.told(state.kept)), state.is_over
        # Sensors may be noisy: a policy that saw something else goes on otherwise. A table shows its state.
        seen = None if self._table is not None else fingerprint(state.observation)
        return self._keeper.identity(state.kept), state.is_over, seen

    def available(self, state: EnvState) -> Sequence[Action]:
        """All actions, or those that the environment's ``action_mask`` advises."""
        return super().available(state) if state.available is None else state.available

    def action_index(self, action: Action, state: EnvState | None = None) -> Action:
        """A mask says which actions the environment advises, not which it can take: Taxi masks what would fail."""
        return super().action_index(action)

    def snapshot(self, state: Any) -> EnvState:
        """A snapshot, or the number of a state of a table."""
        if isinstance(state, EnvState):
            if state.is_over:
                raise ModelError(f"the episode of {self.name} is over in this state: no action changes anything there")
            return state
        if self._table is not None and isinstance(state, int | np.integer):
            return self.at(int(state))
        raise ModelError(
            f"{stack.mistaken_for(state, self.env, self.name)}; give what reset(seed), walk(policy, "
            "steps), capture(env) or a query returned"
            + (", or the number of a state" if self._table is not None else "")
        )

    def capture(self, env: Env[Any, Any], observation: Any = Unseen, info: Mapping[str, Any] | None = None) -> EnvState:
        """The present state of a live environment of the same kind, which stays as it is.

        `observation` and `info` are what its last ``reset`` or ``step`` returned. Without the observation it is read
        from the environment, if that has a method for it; only a policy that acts in this very state needs it.
        """
        other = self._own(env)
        stack.check_same(other, self.env, self.name)
        with named_errors(self.name, "reading its state"):
            kept = self._keeper.capture_from(other)
        is_over = self._table is not None and self._table.is_terminal(int(other.unwrapped.s))  # type: ignore[attr-defined]
        if observation is Unseen:
            observation = stack.present_observation(other)
        return self._arrived(Arrival(kept, copied_value(observation, {}), 0.0, is_over, dict(info or {})))

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the random streams that every step re-seeds."""
        return self._streams.names

    @property
    def state_kind(self) -> str:
        """How the state is kept; `state_reason` says why so."""
        return self._keeper.kind

    @property
    def opaque(self) -> str:
        """A part of the environment that neither shows what it holds nor can be copied, as engines are; else empty."""
        is_known = self.state_kind != "replay" or is_stock(self.env)
        return "" if is_known else next(iter(opaque_parts(self.env)), "")

    def at(self, state: int) -> EnvState:
        """A state of a table by its number, at the start of an episode."""
        if self._table is None or not isinstance(self._keeper, LiveKeeper):
            raise ModelError(f"the states of {self.name} have no numbers (they are kept by {self.state_kind})")
        number = checks.as_index("state", state, None, len(self._table.table))
        self._keeper.start(Noise("at"))
        inner: Any = self.env.unwrapped
        inner.s = number
        mask = getattr(inner, "action_mask", None)
        info = {"action_mask": mask(number)} if callable(mask) else {}
        is_over = self._table.is_terminal(number)
        observation = number if self._is_bare else stack.wrapped_observation(self.env, number)
        return self._arrived(Arrival(self._keeper.capture(), observation, 0.0, is_over, info))

    def live_episode(self, start: Noise, steps: Sequence[tuple[Action, Noise]]) -> list[Outcome]:
        """A start and steps of an environment that is never restored, a new one where there is one besides."""
        own = tuple((self._as_action(action), noise) for action, noise in steps)
        env = (self._origin if isinstance(self._keeper, LiveKeeper) else None) or self.env
        return [Outcome(found.reward, self._arrived(found)) for found in self._keeper.live(env, start, own)]

    def plain_step(self, state: EnvState, action: Action, rng: np.random.Generator) -> Outcome:
        """A step with ordinary generators, as the environment takes it for somebody who steps it by hand."""
        return self.step(state, action, PlainNoise(int(rng.integers(2**63))))

    def random_action(self, rng: np.random.Generator) -> Action:
        """An action drawn uniformly from the action space, with the generator given and not the space's own."""
        if self.action_names is not None:
            return super().random_action(rng)
        if isinstance(self._space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
            own: spaces.Space[Any] = copy.copy(self._space)
            own._np_random = rng
        else:
            own = copy.deepcopy(self._space)
            own.seed(int(rng.integers(2**31)))
        return own.sample()

    def __repr__(self) -> str:
        return f"GymnasiumSimulator({self.name}, state by {self.state_kind}, streams {', '.join(self.streams)})"

    def _own(self, env: Any) -> Env[Any, Any]:
        """The levels of an environment that matter here."""
        found = stack.taken_over(env, self._time_limit)
        return found if self._score is None else stack.Scored(found, self._score)

    def _as_action(self, action: Action) -> Any:
        """An action as the environment takes it, in a value that it may change."""
        space = self._space
        if isinstance(space, spaces.Discrete):
            return int(self.action_value(int(action)))
        if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
            found: NDArray[Any] = np.array(action, dtype=space.dtype)
            if found.shape != space.shape:
                raise ModelError(f"the action {action!r} has shape {found.shape}; {self.name} takes {space.shape}")
            return found
        return copy.deepcopy(action)

    def _arrived(self, found: Arrival) -> EnvState:
        allowed = None if found.is_over else self._allowed(found.info)
        return EnvState(found.kept, found.observation, found.is_over, allowed)

    def _allowed(self, info: dict[str, Any]) -> tuple[int, ...] | None:
        """The actions of the mask in ``info``; None where there is no mask, or nothing in it."""
        mask = info.get("action_mask")
        if mask is None or self.action_names is None:
            return None
        return tuple(np.flatnonzero(np.asarray(mask)).tolist()) or None

    @property
    def _is_bare(self) -> bool:
        """Whether no wrapper but a time limit stands between the environment and the user."""
        return all(isinstance(level, TimeLimit) for level in levels(self.env)[1:])

    def _draw(self, rng: np.random.Generator, info: dict[str, Any]) -> Any:
        """A random action for trying out, among those that the mask allows."""
        allowed = self._allowed(info)
        return self._as_action(self.random_action(rng) if allowed is None else rng.choice(allowed))

    def _choose_keeper(
        self, state: Kind | None, get: Any, put: Any, scratch: Env[Any, Any], taken: Env[Any, Any]
    ) -> tuple[Keeper, str]:
        self._table: TableState | None = None
        if (get is None) != (put is None):
            raise ModelError("get_state and set_state belong together; give both or neither")
        kind, reason = state, "as asked for"
        if state is None:
            kind, reason = self._automatic(get is not None, scratch)
        elif state not in get_args(Kind):
            raise ModelError(f"state is {state!r}; it must be one of {', '.join(map(repr, get_args(Kind)))}")
        if kind == "hooks" and state is None and get is None:
            get, put = clone, restore
        if (kind == "hooks") != (get is not None):
            raise ModelError('state="hooks" goes with get_state and set_state, and no other state does')
        live = partial(LiveKeeper, self.env, self._streams)
        if kind == "table":
            self._table = TableState(scratch)
            return live(kind, self._table.get, self._table.put, lambda number: number), reason
        if kind == "mujoco":
            if not is_physics(self.env):
                raise ModelError(f'{self.name} is no MuJoCo environment of Gymnasium\'s; state="mujoco" needs one')
            physics = PhysicsState(self.env)
            return live(kind, physics.get, physics.put, physics.name), reason
        if kind == "hooks":
            return live(kind, lambda env: _own(get(env)), lambda env, value: put(env, _own(value))), reason
        if kind == "copy":
            keeper = CopyKeeper(self.env, self._streams)
            fault = fault_of_copies(keeper, self._draw)
            if state is not None or fault is None:
                return keeper, reason if fault is None else f"{reason}, though {fault}"
            reason = f"a deep copy does not serve: {fault}"
        self.env = taken  # copies do not serve
        self.env.unwrapped.render_mode = None
        # Further environments like this one are made where its class says how and the first one behaves so.
        origin, make = self._origin, None
        if origin is not None and isinstance(self.env.unwrapped, gymnasium.utils.EzPickle):
            if scratch is not self.env:  # all copies may go the same wrong way (Meta-World's arm hangs loose)
                self._first_trial = explored(self.env, self._draw)[1]
            trial = attempt(lambda: explored(copy.deepcopy(origin), self._draw)[1])
            if trial is not None and parted(trial, self._first_trial) is None:
                make = partial(copy.deepcopy, origin)
        return ReplayKeeper(self.env, self._streams, make), reason

    def _automatic(self, has_hooks: bool, scratch: Env[Any, Any]) -> tuple[Kind, str]:
        """The first way of keeping the state that works, and why it was taken."""
        if has_hooks:
            return "hooks", "get_state and set_state are given"
        inner = self.env.unwrapped
        if callable(getattr(inner, "clone_state", None)) and callable(getattr(inner, "restore_state", None)):
            return "hooks", "the environment has clone_state and restore_state"
        if is_stock_table(self.env):
            return "table", "a toy-text environment's state is its number"
        if is_physics(self.env):
            resets = (scratch.reset(seed=seed) for seed in range(2))
            if len({model_bytes(scratch.unwrapped.model) for _ in resets}) == 1:  # type: ignore[attr-defined]
                return "mujoco", "the physics of a MuJoCo environment can be copied"
        return "copy", "a deep copy behaves like the original"

    def _unreached_noise(self) -> str:
        """See `Simulator.frozen_noise`: tried out on environments that are as they were before the first episode."""
        make = self._keeper.make if isinstance(self._keeper, ReplayKeeper) else None
        if isinstance(self._keeper, CopyKeeper):
            make = lambda: stack.twin(self.env)  # noqa: E731
        return frozen_noise(self.name, self._keeper, make or (lambda: self.env), self._draw)


def _own(value: Any) -> Any:
    """A user's state as a value of our own; what cannot be copied (a handle of another language) as it is."""
    with contextlib.suppress(TypeError):
        return copied_value(value, {})
    return value


# -- trying an environment out ---------------------------------------------------------------------------------------
# All trials take the same few random steps in two ways and compare: from a copy and from the original, from a restored
# state twice, and in two live episodes that begin alike. In the last, a generator shows that cannot be found, in
# compiled code or behind an iterator: copies and replays repeat one future, but two live episodes with all that can be
# seen of them equal go different ways under the same noise.


def _steps(
    step: Callable[[Any, Any, Noise], Arrival],
    at: Arrival,
    draw: DrawAction,
    *noise: str | int,
    seed: int = 1,
    most: int = TRIAL_STEPS,
) -> Iterator[Arrival]:
    """Steps with random actions of a seed under the noise of an address, until the episode ends."""
    rng = np.random.default_rng(seed)
    for t in range(most):
        at = step(at.kept, draw(rng, at.info), Noise(*noise, t))
        yield at
        if at.is_over:
            return


def _seen(value: Any) -> bytes:
    try:
        return fingerprint(value)
    except ValueError:  # one for all that have none
        return b""


def _traced(arrivals: Iterable[Arrival]) -> Trace:
    """What steps give; global generators begin alike, since they are not what is tried out."""
    with kept_globals(0):
        return [_seen((found.observation, found.reward, found.is_over)) for found in arrivals]


def parted(one: Trace, other: Trace) -> int | None:
    """The step, from 1, at which two ways part; None where they are the same as far as both go."""
    return next((t for t, (x, y) in enumerate(zip(one, other, strict=False), 1) if x != y), None)


def explored(env: Env[Any, Any], draw: DrawAction) -> tuple[Streams, Trace]:
    """The streams of an environment after a start and a few random steps, and what these gave.

    It is searched three times: as it is, after the start, which may hand one generator to several parts, and after the
    steps, since some generators are made when they are first used.
    """
    noise = Noise("trial")
    with kept_globals(0):
        watch = SpaceWatch(env)
        discovered(env).reseed(env, noise)
        at = Arrival.begun(env, noise.seed)
        streams = discovered(env)
        trace = _traced(_steps(partial(moved_under, streams), at, draw, "go on"))
        return streams.joined(discovered(env, watch.used())), [_seen(at.observation), *trace]


def fault_of_copies(keeper: CopyKeeper, draw: DrawAction) -> str | None:
    """What is wrong with keeping states as copies, or None.

    A state is gone on from in three ways: copied before every step, copied once, and as it is. If copies hold the whole
    state and share none of it, all three go the same way; then a state that was left may also be reached again by the
    steps that led to it, unless these ask a global generator.
    """
    fault = stack.copy_fault(keeper.env)
    if fault is not None:
        return fault
    is_global, count = False, TRIAL_STEPS
    keeper.most_steps = 0  # copied before every step

    def copied_once(kept: Any, action: Any, noise: Noise) -> Arrival:
        if isinstance(kept, Place):
            return moved(keeper.copied_under(keeper.pinned(kept), noise), action)
        return moved_under(keeper.streams, kept, action, noise)

    for episode in range(TRIAL_EPISODES):
        try:
            with kept_globals(0):
                before, began = global_states(), time.monotonic()
                at = keeper.start(Noise("trial", episode))
                for found in _steps(keeper.step, at, draw, "trial", episode, seed=episode):
                    at = at if found.is_over else found
                    if time.monotonic() - began > SLOW:
                        count = SLOW_STEPS
                        break
                is_global = is_global or global_states() != before
            itself = at._replace(kept=keeper.pinned(at.kept))
            ways = ((keeper.step, at), (copied_once, at), (partial(moved_under, keeper.streams), itself))
            first, *others = (_traced(_steps(step, state, draw, "go on", most=count)) for step, state in ways)
        except Exception as error:  # whatever an environment raises when it is copied, or stepped half-made
            return stack.error_text(error)
        if any(parted(first, other) for other in others):
            return "a copy goes another way than the original, so it does not hold the whole state"
        if count == SLOW_STEPS:
            break
    keeper.most_steps = 0 if is_global else MOST_REPEATED
    return None


def is_stock(env: Env[Any, Any]) -> bool:
    """Whether an environment is Gymnasium's own, whose generators are known, with Gymnasium's own wrappers at most."""
    inner, *outer = (type(level).__module__ for level in levels(env))
    return inner.startswith("gymnasium.envs.") and all(module.startswith("gymnasium.wrappers") for module in outer)


def frozen_noise(name: str, keeper: Keeper, make: Callable[[], Env[Any, Any]], draw: DrawAction) -> str:
    """What was seen of randomness that the noise does not reach, in a sentence; empty where nothing was.

    The environments that `make` gives differ in nothing but the seed of a reset, or in an earlier episode: if two live
    episodes part that began alike, something else is random. What is random from a restored state too is not frozen.
    """
    if is_stock(keeper.env):
        return ""
    began = time.monotonic()
    one = _live(make(), keeper.streams, draw, seed=1, earlier_steps=0)
    others = ((2, EARLIER_STEPS),) if time.monotonic() - began > SLOW_LIVE else ((2, 0), (1, EARLIER_STEPS))
    episodes = ((one, _live(make(), keeper.streams, draw, *other)) for other in others)
    pairs = (pair for both in episodes for pair in zip(*both, strict=False))
    step = next((t for (start, x), (other, y) in pairs if start == other and (t := parted(x, y))), None)
    if step is None:
        return ""
    at = keeper.start(Noise("trial"))
    if parted(*(_traced(_steps(keeper.step, at, draw, "go on")) for _ in range(2))):
        return ""
    seen = (
        f"{name} is random in a way that the noise does not reach: two live episodes that began alike parted at step "
        f"{step} under the same noise, but from a restored state the same future comes every time"
    )
    opaque = opaque_parts(keeper.env)
    if type(keeper.env.unwrapped).__module__.startswith("ale_py"):
        advice = "make it with repeat_action_probability=0 and wrap it in gymnasium.wrappers.StickyAction"
    elif opaque:
        return (
            f"{seen}. Likely an engine with dice of its own, {opaque[0]}, which only a reset seeds, so that each seed "
            "has one future; compare from the start, where each replication has a seed of its own"
        )
    else:
        advice = "draw from self.np_random, or name the generator in streams="
    return (
        f"{seen}. A generator of its own is not among the streams (in compiled code, an iterator, or left out of "
        f"streams=); {advice}"
    )


def _live(
    env: Env[Any, Any], streams: Streams, draw: DrawAction, seed: int, earlier_steps: int
) -> list[tuple[bytes, Trace]]:
    """Live episodes under the same noise, after an earlier episode: how each began, and its steps.

    The resets of the first of them are given the seed too: there are engines that only that reaches.
    """
    found: list[tuple[bytes, Trace]] = []
    step = partial(moved_under, streams)
    with kept_globals(0):
        streams.reseed(env, Noise("earlier"))
        list(_steps(step, Arrival.begun(env, SEED + seed), draw, "live", -1, seed=0, most=earlier_steps))
        left, end = LIVE_STEPS, time.monotonic() + LIVE_SECONDS

        def in_time(arrivals: Iterator[Arrival]) -> Iterator[Arrival]:
            for t, each in enumerate(arrivals, 1):
                yield each
                seed_globals(t)
                if t >= LEAST_LIVE_STEPS and time.monotonic() > end:
                    return

        for number in (LIVE_EPISODES, *range(LIVE_EPISODES)):
            if 0 < number < LIVE_EPISODES and time.monotonic() > end:
                break
            is_first = number == LIVE_EPISODES
            streams.reseed(env, Noise("live", number))
            with kept_globals(number):
                at = Arrival.begun(env, SEED + seed if is_first else None)
            begin = fingerprint((fingerprint(at.observation), _visible(env, streams, SEED + seed)))
            most = LIVE_STEPS if is_first else left
            steps = _traced(in_time(_steps(step, at, draw, "live", number, seed=number + 1, most=most)))
            left -= 0 if is_first else len(steps)
            found.append((begin, steps))
    return found


def _visible(env: Env[Any, Any], streams: Streams, seed: int) -> list[Any]:
    """Hashes of what an environment remembers in the open; where that differs, another way is no wonder."""
    found = []
    for _, name, value in _parts(env):
        is_seed = "seed" in name.lower() or (isinstance(value, int) and value == seed)
        if name in streams.attributes or isinstance(value, Iterator) or is_seed:
            continue
        # A goal may be drawn in the reset and held by a function.
        held = [part for link, part in fingerprints.held(value) if link.kind in ("closure", "default")]
        try:
            found.append((name, fingerprint([value, *held], streams.attributes | stack.SETUP)))
        except Exception:  # what does not show itself is what is looked for
            continue
    return found


def opaque_parts(env: Env[Any, Any]) -> Sequence[str]:
    """The attributes of an environment that do not show what they hold: engines in other languages."""
    found = []
    for level, name, value in _parts(env):
        try:
            fingerprint(value, stack.SETUP)
        except Exception:  # whatever it raises when it is looked into
            found.append(f"{type(level).__name__}.{name} ({type(value).__name__})")
    return found


def _parts(env: Env[Any, Any]) -> Iterator[tuple[Env[Any, Any], str, Any]]:
    """The attributes of all levels beside those that say how they were made."""
    for level in levels(env):
        yield from ((level, name, value) for name, value in vars(level).items() if name not in stack.SETUP)
