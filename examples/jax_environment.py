"""How much water should a reservoir release? A JAX environment of your own: a step function and a first state.

The random key is an argument, so all actions get the same rain, and thousands of futures run at a time. Look at the
interval of the difference: twenty thousand pairs of futures of about a hundred steps take seconds.
"""

import jax
import jax.numpy as jnp

import jointmdp as jm

CAPACITY = 10.0


def week(key: jax.Array, water: jax.Array, gates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Released water makes power; a flood over the dam costs, and so does a dry river."""
    rain = 1.5 * jnp.exp(0.6 * jax.random.normal(key))
    released = jnp.minimum(water, gates.astype(float))
    level = water - released + rain
    flood = jnp.maximum(level - CAPACITY, 0.0)
    power = released * (0.5 + level / CAPACITY)  # a high level gives more power for the same water
    return power - 4.0 * flood - jnp.where(released < 0.5, 1.0, 0.0), jnp.minimum(level, CAPACITY)


def by_level(water: jax.Array) -> jax.Array:
    """The policy: one gate for every three units of water above 2."""
    return jnp.clip((water - 2.0) / 3.0 + 1.0, 0, 3).astype(int)


def main() -> None:
    reservoir = jm.JaxSimulator(
        week,
        jnp.asarray(8.0),
        actions=["closed", "one gate", "two gates", "three gates"],
        discount=0.9,
        name="reservoir",
    )
    full = reservoir.reset()
    outcomes = reservoir.query(full, reservoir.action_names, jm.Noise(3))
    for name, outcome in zip(reservoir.action_names, outcomes, strict=True):
        print(
            f"{name:<11} pays {outcome.reward:5.2f}, level next week {reservoir.observe(outcome.state):.2f} (same rain)"
        )
    sample = jm.simulate(
        reservoir, by_level, full, ["three gates", "one gate"], num_samples=20_000, seed=1, gaps_only=True
    ).gap("three gates", "one gate")
    print(f"three gates instead of one: {sample.mean:.2f} in {sample.mean_interval:.2f}, ± {sample.std:.2f}")
    often, worst = sample.superiority().estimate, sample.cvar(0.05).estimate
    print(f"better in {often:.0%} of all futures; the worst 5 % lose {-worst:.1f}")
    print(f"a lead of {sample.quantile(0.95).lower:.1f} or more in the best 5 %: floods are rare, and dear")


if __name__ == "__main__":
    main()
