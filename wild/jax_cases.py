"""Rows of packages written in JAX: how each becomes a simulator, with its key given and with its key kept."""

from collections.abc import Callable
from typing import Any

from wild.configuration import Configuration


def pgx(id: str) -> Callable[[], Any]:
    """`step` takes the key; rewards are those of the player to move."""

    def make() -> Any:
        import pgx

        import jointmdp as jm

        env = pgx.make(id)

        def step(key: Any, state: Any, action: Any) -> Any:
            after = env.step(state, action, key)
            return after.rewards[state.current_player], after, after.terminated | after.truncated

        return jm.JaxSimulator(
            step,
            env.init,
            actions=env.num_actions,
            observe=lambda state: state.observation,
            available=lambda state: state.legal_action_mask,
            name=f"pgx {id}",
        )

    return make


def jumanji(id: str, renew: bool = True, **settings: Any) -> Callable[[], Any]:
    """The key lives in the state: a step is given its own, or goes on with the one that is kept."""

    def make() -> Any:
        import jumanji

        import jointmdp as jm

        env = jumanji.make(id, **settings)

        def step(key: Any, state: Any, action: Any) -> Any:
            after, timestep = env.step(state.replace(key=key) if renew else state, action)
            return timestep.reward, after.replace(key=state.key) if renew else after, timestep.last()

        return jm.JaxSimulator(
            step, lambda key: env.reset(key)[0], actions=int(env.action_spec.num_values), name=f"jumanji {id}"
        )

    return make


def with_key(timestep: Any, key: Any) -> Any:
    """A time step whose state holds this key."""
    return timestep.replace(state=timestep.state.replace(key=key))


def navix(id: str, renew: bool = True) -> Callable[[], Any]:
    def make() -> Any:
        import navix

        import jointmdp as jm

        env = navix.make(id)

        def step(key: Any, timestep: Any, action: Any) -> Any:
            after = env._step(with_key(timestep, key) if renew else timestep, action)
            return after.reward, with_key(after, timestep.state.key) if renew else after, after.is_done()

        return jm.JaxSimulator(
            step, env.reset, actions=len(env.action_set), observe=lambda timestep: timestep.observation, name=id
        )

    return make


def xminigrid(id: str) -> Callable[[], Any]:
    def make() -> Any:
        import xminigrid

        import jointmdp as jm

        env, params = xminigrid.make(id)

        def step(key: Any, timestep: Any, action: Any) -> Any:
            after = env.step(params, timestep, action)
            return after.reward, after, after.last()

        return jm.JaxSimulator(
            step,
            lambda key: env.reset(params, key),
            actions=int(env.num_actions(params)),
            observe=lambda timestep: timestep.observation,
            name=id,
        )

    return make


def craftax(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from craftax.craftax_env import make_craftax_env_from_name

        import jointmdp as jm

        return jm.simulators.gymnax_simulator(make_craftax_env_from_name(name, auto_reset=False))

    return make


def brax(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import jax
        from brax import envs

        import jointmdp as jm

        env = envs.get_environment(name)

        def step(key: Any, state: Any, action: Any) -> Any:
            after = env.step(state, action)
            return after.reward, after, after.done > 0

        def random_action(key: Any) -> Any:
            return jax.random.uniform(key, (env.action_size,), minval=-1.0, maxval=1.0)

        return jm.JaxSimulator(
            step, env.reset, actions=None, observe=lambda state: state.obs, random_action=random_action, name=name
        )

    return make


def gymnax(id: str) -> Callable[[], Any]:
    def make() -> Any:
        import jointmdp as jm

        return jm.simulators.gymnax_simulator(id)

    return make


CASES = (
    Configuration("pgx", "2048", pgx("2048"), "The step is given its key and draws the new tile from it."),
    Configuration("pgx", "tic_tac_toe", pgx("tic_tac_toe"), "The key decides who begins; a step draws nothing."),
    Configuration(
        "pgx", "minatar-breakout", pgx("minatar-breakout"), "Sticky actions and the ball come from the step's key."
    ),
    Configuration(
        "pgx",
        "kuhn_poker",
        pgx("kuhn_poker"),
        "Cards are dealt in the reset and belong to the state; a step draws nothing.",
    ),
    Configuration(
        "jumanji",
        "Game2048-v1, the step's key",
        jumanji("Game2048-v1"),
        "The state holds a key; with the step's key put in its place, the new tile is the step's noise.",
    ),
    Configuration(
        "jumanji",
        "Game2048-v1, the state's key",
        jumanji("Game2048-v1", False),
        "The step goes on with the key in the state: its own key is ignored, and every replication has one future.",
        verdict="failed",
        says=("key",),
        compares=False,
    ),
    Configuration(
        "jumanji",
        "Snake-v1, the step's key",
        jumanji("Snake-v1"),
        "A fruit that is eaten grows again by the step's key.",
    ),
    Configuration(
        "jumanji",
        "Maze-v0",
        jumanji("Maze-v0"),
        "The maze is drawn in the reset; a step draws nothing, and its key does not matter.",
    ),
    Configuration("navix", "Empty-5x5", navix("Navix-Empty-5x5-v0"), "A step draws nothing."),
    Configuration(
        "navix",
        "Dynamic-Obstacles-5x5, the step's key",
        navix("Navix-Dynamic-Obstacles-5x5-v0"),
        "Balls move by the key in the state, which is the step's here.",
    ),
    Configuration(
        "navix",
        "Dynamic-Obstacles-5x5, the state's key",
        navix("Navix-Dynamic-Obstacles-5x5-v0", False),
        "Balls move by the key in the state: the step's key is ignored, and every replication has one future.",
        verdict="failed",
        says=("key",),
        compares=False,
    ),
    Configuration(
        "xminigrid",
        "MiniGrid-Empty-5x5",
        xminigrid("MiniGrid-Empty-5x5"),
        "A step draws nothing; the key in the state waits for the next reset.",
    ),
    Configuration(
        "craftax",
        "Craftax-Classic-Symbolic-v1",
        craftax("Craftax-Classic-Symbolic-v1"),
        "gymnax's interface without a time limit of its own; all that happens comes from the step's key.",
    ),
    Configuration(
        "brax",
        "inverted_pendulum",
        brax("inverted_pendulum"),
        "The start is jittered; physics draws nothing, in float32.",
    ),
    Configuration("gymnax", "Breakout-MinAtar", gymnax("Breakout-MinAtar"), "Sticky actions come from the step's key."),
)
