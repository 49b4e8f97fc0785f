"""Queries of Atari games beside the bare emulator steps, clones and restores that they need, taken in turns."""

import time

import ale_py
import numpy as np

import jointmdp as jm
from jointmdp.simulation.simulators.atari_simulator import FRAMES, rom_of

GAMES = ("Pong", "BattleZone", "Boxing", "Atlantis")
ROUNDS, QUERIES = 9, 20


def main() -> None:
    print("Atari: all actions of a state, one core; medians of turns")
    print(f"{'game':12} {'observed':8} {'actions':>7} {'queries/s':>9} {'bare/s':>8} {'times the bare emulator':>24}")
    for game in GAMES:
        for observation in ("ram", "frames"):
            simulator = jm.AtariSimulator(game, observation=observation, shocks="A")
            state = simulator.walk("uniform", 60)
            actions = range(len(simulator.action_names or ()))
            ale = ale_py.ALEInterface()
            ale.setFloat("repeat_action_probability", 0.0)
            ale.setInt("frame_skip", 1)
            ale.loadROM(rom_of(game))
            given, memory = ale.getMinimalActionSet(), ale_py.ALEState(state.memory)
            ours, bare = [], []
            for turn in range(ROUNDS):
                begun = time.perf_counter()
                for i in range(QUERIES):
                    simulator.query(state, actions, jm.Noise("benchmark", turn, i))
                ours.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                for _ in range(QUERIES):
                    for action in given:
                        ale.restoreState(memory)
                        for _ in range(FRAMES):
                            ale.act(action)
                        ale.cloneState()
                bare.append(time.perf_counter() - begun)
            one, other = float(np.median(ours)) / QUERIES, float(np.median(bare)) / QUERIES
            print(f"{game:12} {observation:8} {len(given):7} {1 / one:9.0f} {1 / other:8.0f} {one / other:24.2f}")
