"""Solve today, read tomorrow: a model, a solution and a comparison as files.

A car park sells tickets for the day at a low or a high price. Look at what comes back: the same numbers to the last
bit, the model equal to the one that was saved, and one clear error for a file that was damaged on the way.
"""

import tempfile
from pathlib import Path

import jointmdp as jm

PLACES = 5


def reward(taken: int, price: int, demand: int) -> float:
    return (6.0, 8.0)[price] * min(PLACES - taken, demand if price == 0 else demand // 2)


def after(taken: int, price: int, demand: int) -> int:
    """Half of the cars leave over night."""
    return (taken + min(PLACES - taken, demand if price == 0 else demand // 2)) // 2


def main() -> None:
    model = jm.from_noise(
        reward,
        after,
        [0, 1, 2, 4, 6],
        [0.1, 0.2, 0.3, 0.25, 0.15],
        num_states=PLACES + 1,
        num_actions=2,
        discount=0.9,
        sharing="time",
        state_names=[f"{n} taken" for n in range(PLACES + 1)],
        action_names=["low", "high"],
    )
    solution = jm.evaluate(model, "low")
    found = jm.compare(model, "low", "2 taken", max_replications=2_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for thing, file in ((model, "park.npz"), (solution, "solved.npz"), (found, "compared.npz")):
            jm.save(thing, folder / file)
            print(f"{file}: {(folder / file).stat().st_size:,} bytes")
        print("the same model:", jm.load(folder / "park.npz") == model)
        gap = jm.load(folder / "solved.npz").gap("2 taken", "low", "high")
        is_same = gap == solution.gap("2 taken", "low", "high")
        print(f"low instead of high: {gap.mean:.2f} ± {gap.std:.2f}, as before: {is_same}")
        print("the comparison still knows its best:", jm.load(folder / "compared.npz").best)

        content = bytearray((folder / "park.npz").read_bytes())
        content[len(content) // 2] ^= 1  # one bit, somewhere in the middle
        (folder / "park.npz").write_bytes(content)
        try:
            jm.load(folder / "park.npz")
        except jm.ModelError as error:
            print("damaged:", str(error).replace(name, "…"))


if __name__ == "__main__":
    main()
