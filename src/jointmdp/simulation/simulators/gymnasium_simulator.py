"""Any Gymnasium environment as a simulator: several actions from one state, under the same noise.

Three things make an environment a simulator: its state can be restored (`gymnasium_states`), all its randomness comes
from the noise that a step is given (`gymnasium_noise`), and the end of an episode absorbs. Both are tried out when it
is wrapped (`gymnasium_trials`).
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground import checks
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.simulators.fingerprints import fingerprint
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

from jointmdp.simulation.simulators import gymnasium_trials as trials
from jointmdp.simulation.simulators import gymnasium_wrappers as stack
from jointmdp.simulation.simulators.gymnasium_noise import PlainNoise, SeedNoise, named
from jointmdp.simulation.simulators.gymnasium_states import (
    Arrival,
    CopyKeeper,
    Keeper,
    LiveKeeper,
    PhysicsState,
    ReplayKeeper,
    TableState,
    clone,
    is_physics,
    is_stock_table,
    model_bytes,
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
            with named_errors(self.name, "a trial (a reset and some random steps)"):
                found_streams, self._first_trial = trials.explored(scratch, self._draw)
                self._streams = found_streams if streams is None else named(scratch, streams)
                self._keeper, self.state_reason = self._choose_keeper(state, get_state, set_state, scratch, taken)
                self.frozen_noise = attempt(self._frozen_noise) or ""
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
        is_known = self.state_kind != "replay" or trials.is_stock(self.env)
        return "" if is_known else next(iter(trials.opaque_parts(self.env)), "")

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
            fault = trials.fault_of_copies(keeper, self._draw)
            if state is not None or fault is None:
                return keeper, reason if fault is None else f"{reason}, though {fault}"
            reason = f"a deep copy does not serve: {fault}"
        self.env = taken  # copies do not serve
        self.env.unwrapped.render_mode = None
        # Further environments like this one are made where its class says how and the first one behaves so.
        origin, make = self._origin, None
        if origin is not None and isinstance(self.env.unwrapped, gymnasium.utils.EzPickle):
            if scratch is not self.env:  # all copies may go the same wrong way (Meta-World's arm hangs loose)
                self._first_trial = trials.explored(self.env, self._draw)[1]
            trial = attempt(lambda: trials.explored(copy.deepcopy(origin), self._draw)[1])
            if trial is not None and trials.parted(trial, self._first_trial) is None:
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

    def _frozen_noise(self) -> str:
        """See `Simulator.frozen_noise`: tried out on environments that are as they were before the first episode."""
        make = self._keeper.make if isinstance(self._keeper, ReplayKeeper) else None
        if isinstance(self._keeper, CopyKeeper):
            make = lambda: stack.twin(self.env)  # noqa: E731
        return trials.frozen_noise(self.name, self._keeper, make or (lambda: self.env), self._draw)


def _own(value: Any) -> Any:
    """A user's state as a value of our own; what cannot be copied (a handle of another language) as it is."""
    with contextlib.suppress(TypeError):
        return copied_value(value, {})
    return value
