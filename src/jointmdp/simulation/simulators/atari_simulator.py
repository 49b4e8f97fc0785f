"""Atari games as a simulator: several actions from one state of the emulator, with the same stickiness and shocks.

The emulator's own sticky actions do not survive a restore: the action that they repeat is in no clone. So they are off
here, and an action sticks by numbers of the noise, one for each frame: the game goes on with the action before wherever
the number is below `stickiness`. A state is the emulator's memory and the action that it was given last; it carries its
observation, since the screen after a restore is that of another state.

A shock is a fair coin, ±1, so that rewards stay bounded. The coin of an action belongs to the action, not to its place
in a query.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Outcome, Simulator

try:
    import ale_py
except ImportError as error:
    raise ImportError("AtariSimulator needs ale-py, which is not installed: pip install 'jointmdp[atari]'") from error

Observation = Literal["ram", "frames"]
FRAMES = 4  # of an observation, and of a step
SIDE = 84  # of a frame, in pixels


class RewardShocks(NamedTuple):
    """Rewards ``game·sign(r) + shared·ξ + own·ε_a`` with fair coins ξ and ε of ±1."""

    game: float = 1.0
    """Of the sign of the game's own reward."""
    shared: float = 0.0
    """Of the coin ξ that all actions have in common."""
    own: float = 0.0
    """Of the coin ε of each action."""
    sharing: Literal["state", "time"] = "state"
    """Whether branches have the coins in common in the same state, or at the same time wherever they are."""

    @property
    def bound(self) -> float:
        """No reward is further from 0."""
        return abs(self.game) + abs(self.shared) + abs(self.own)


VARIANTS = {
    "A": RewardShocks(1.0, 1.0, 0.1, "state"),
    "B": RewardShocks(0.1, 1.0, 0.1, "time"),
    "C": RewardShocks(),
}


class AtariState(NamedTuple):
    """A snapshot."""

    game: str
    memory: bytes
    """The emulator's."""
    previous: int
    """The action that the game was given last."""
    observation: NDArray[np.uint8]
    """RAM ``[128]``, or the last four frames ``[4, 84, 84]``, the newest last."""
    is_over: bool = False


class AtariSimulator(Simulator):
    """An Atari 2600 game that can be asked what several actions give in one state under the same noise.

    Args:
        game: its name as in Gymnasium, ``"Pong"``, ``"BattleZone"``.
        observation: what a policy sees: ``"ram"``, 128 bytes, or ``"frames"``, the last four screens as
            ``[84, 84, 4]`` bytes of grey.
        stickiness: how likely a frame repeats the action before.
        shocks: a variant of the coins on rewards, ``"A"``, ``"B"`` or ``"C"`` (none), or `RewardShocks`.
        no_ops: most frames without an action that an episode begins with.
        discount, sharing: as in `Simulator`.

    A step is four frames; its reward is the sign of what the game paid in them. Actions are those that the game uses.
    """

    def __init__(
        self,
        game: str,
        *,
        observation: Observation = "ram",
        stickiness: float = 0.25,
        shocks: RewardShocks | str = "C",
        no_ops: int = 30,
        discount: float = 0.99,
        sharing: Sharing = "state",
    ) -> None:
        if observation not in ("ram", "frames"):
            raise ModelError(f'observation is {observation!r}; it must be "ram" or "frames"')
        self.game, self._rom = game, rom_of(game)
        self.observation, self.stickiness = observation, checks.as_probability("stickiness", stickiness)
        self.shocks, self.no_ops = as_shocks(shocks), checks.as_count("no_ops", no_ops, 0)
        bound = self.shocks.bound
        self._describe(f"atari:{game}", discount, sharing, (-bound, bound))
        self._actions = tuple(_emulators(self._rom)[0].getMinimalActionSet())
        self.action_names = tuple(action.name.lower() for action in self._actions)

    def __repr__(self) -> str:
        return (
            f"AtariSimulator({self.game}, {len(self._actions)} actions, observed by {self.observation}, stickiness "
            f"{self.stickiness:g}, {self.shocks})"
        )

    def start(self, noise: Noise) -> AtariState:
        """The beginning of an episode, after some frames in which nothing is done."""
        ale, beginning, screen = _emulators(self._rom)
        ale.restoreState(beginning)
        count = int(noise.rng.integers(self.no_ops + 1))
        for _ in range(count):
            ale.act(0)
        if self.observation == "ram":
            return self._state(ale, 0, ale.getRAM())
        frame = _small(ale.getScreenGrayscale() if count else screen)
        return self._state(ale, 0, np.repeat(frame[None], FRAMES, axis=0))

    def at(self, state: Any) -> AtariState:
        """A snapshot, checked."""
        if not isinstance(state, AtariState):
            raise ModelError(f"{state!r:.80} is no state of {self.name}; take one of reset or walk")
        self._check(state)
        return state

    def _check(self, state: AtariState) -> None:
        if state.game != self.game:
            raise ModelError(f"this is a state of {state.game}, and {self.name} is asked")
        if state.observation.shape != ((128,) if self.observation == "ram" else (FRAMES, SIDE, SIDE)):
            raise ModelError(f"this state of {state.game} carries another observation than {self.observation!r}")

    def step(self, state: AtariState, action: Action, noise: Noise) -> Outcome:
        """Four frames."""
        return self.query(state, [action], noise)[0]

    def query(self, state: AtariState, actions: Sequence[Action], noise: Noise) -> list[Outcome]:
        """Every action from the restored state, with the same numbers of the noise."""
        if state.is_over:
            return [Outcome(0.0, state) for _ in actions]
        self._check(state)
        sticks = noise["sticky actions"].random(FRAMES) < self.stickiness
        coins = self._coins(noise)
        ale, memory = _emulators(self._rom)[0], ale_py.ALEState(state.memory)
        found = []
        for number in map(self._numbered, actions):
            ale.restoreState(memory)
            taken, paid, earlier = state.previous, 0, None
            for i, is_stuck in enumerate(sticks.tolist()):
                if i == FRAMES - 1 and self.observation == "frames":
                    earlier = ale.getScreenGrayscale()
                taken = taken if is_stuck else number
                paid += ale.act(self._actions[taken])
                if ale.game_over():
                    break
            if self.observation == "ram":
                seen = ale.getRAM()
            else:
                seen = np.concatenate([state.observation[1:], _small(ale.getScreenGrayscale(), earlier)[None]])
            reward = self.shocks.game * float(np.sign(paid))
            if coins is not None:
                reward += self.shocks.shared * coins[0] + self.shocks.own * coins[1 + number]
            found.append(Outcome(reward, self._state(ale, taken, seen)))
        return found

    def _state(self, ale: Any, taken: int, observation: NDArray[np.uint8]) -> AtariState:
        return AtariState(self.game, ale.cloneState().serialize(), taken, observation, ale.game_over())

    def _coins(self, noise: Noise) -> Floats | None:
        """ξ, then ε of each action, as ±1."""
        if not (self.shocks.shared or self.shocks.own):
            return None
        source = noise.clock if self.shocks.sharing == "time" else noise
        return np.where(source["coins"].random(1 + len(self._actions)) < 0.5, -1.0, 1.0)

    def observe(self, state: AtariState) -> NDArray[np.uint8]:
        """RAM ``[128]``, or frames ``[84, 84, 4]``."""
        return state.observation if self.observation == "ram" else state.observation.transpose(1, 2, 0)

    def is_over(self, state: AtariState) -> bool:
        """Whether the game is over."""
        return state.is_over

    def identity(self, state: AtariState) -> bytes:
        """A hash of memory and last action; of the frames too, where a policy sees them."""
        seen = state.observation if self.observation == "frames" else None
        return fingerprint((state.memory, state.previous, state.is_over, seen))


def as_shocks(given: RewardShocks | str) -> RewardShocks:
    """A variant by its letter, or as it is given."""
    if isinstance(given, RewardShocks):
        for name in ("game", "shared", "own"):
            checks.as_number(name, getattr(given, name))
        if given.sharing not in ("state", "time"):
            raise ModelError(f'the sharing of shocks is {given.sharing!r}; it must be "state" or "time"')
        return given
    if given not in VARIANTS:
        raise ModelError(f"shocks is {given!r}; give one of {', '.join(VARIANTS)}, or RewardShocks(…)")
    return VARIANTS[given]


@cache
def rom_of(game: str) -> str:
    """Where the game lies; the names are those of Gymnasium."""
    known = {"".join(part.capitalize() for part in name.split("_")): name for name in ale_py.roms.get_all_rom_ids()}
    if game not in known:
        near = get_close_matches(str(game), known, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise ModelError(f"there is no Atari game {game!r}{hint} Names are written as in Gymnasium: Pong, BattleZone")
    return str(ale_py.roms.get_rom_path(known[game]))


def _small(screen: NDArray[np.uint8], before: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """A frame of 84×84 pixels, each the mean of the area that it covers.

    Sprites that are drawn in every other frame are seen by the larger of both, as is usual.
    """
    whole = (screen if before is None else np.maximum(screen, before)).astype(np.float32)
    rows, columns = (_areas(size) for size in whole.shape)
    flat = (rows @ whole.reshape(-1, rows.shape[1], whole.shape[1])).reshape(SIDE, -1)
    return np.rint(flat.reshape(SIDE, -1, columns.shape[1]) @ columns.T).astype(np.uint8).reshape(SIDE, SIDE)


@cache
def _areas(size: int) -> NDArray[np.float32]:
    """The shares of pixels in larger ones, ``[84/g, size/g]``: the same pattern g times, g the common divisor."""
    g = math.gcd(size, SIDE)
    ends, pixels = np.linspace(0, size // g, SIDE // g + 1), np.arange(size // g)
    covered = np.minimum(ends[1:, None], pixels + 1) - np.maximum(ends[:-1, None], pixels)
    return (np.maximum(covered, 0.0) * SIDE / size).astype(np.float32)


class _Emulators(threading.local):
    """One emulator for each game in each thread: they have one state, and are not made twice.

    Beside it the beginning of its game, with its screen: a reset would count frames on from the episode before.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, Any, NDArray[np.uint8]]] = {}

    def __call__(self, rom: str) -> tuple[Any, Any, NDArray[np.uint8]]:
        if rom not in self._found:
            ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
            ale = ale_py.ALEInterface()
            ale.setFloat("repeat_action_probability", 0.0)
            ale.setInt("frame_skip", 1)
            ale.setInt("random_seed", 0)
            ale.setInt("max_num_frames_per_episode", 0)
            ale.loadROM(rom)
            self._found[rom] = ale, ale.cloneState(), ale.getScreenGrayscale()
        return self._found[rom]


_emulators = _Emulators()
