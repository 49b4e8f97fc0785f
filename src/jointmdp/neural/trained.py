"""Means and covariances of returns as trained networks say them, at any state of the simulator.

Every number is the mean over the networks, and its error half the width of Student's 95 % interval of that mean: how
far another set of networks, trained on the same queries, may be off. It is not the error of the queries, nor what
networks of this size cannot learn: `jointmdp.simulate_gap` at some states shows those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jointmdp.arrays import Floats, float32, on_device
from jointmdp.bellman.network_backups import MomentHeads
from jointmdp.incremental.replicas import Estimate, LearnedGap, student_factor
from jointmdp.incremental.simulator_walks import state_key
from jointmdp.neural.recording import as_numbers
from jointmdp.neural.trainer import Trainer, TrainState
from jointmdp.report.result_face import ResultFace
from jointmdp.simulators.simulator import Simulator


@dataclass(frozen=True, eq=False, repr=False)
class TrainedMoments(ResultFace):
    """What `train` gives: ``mean_at``, ``covariance_at``, ``gap`` and more, at a state."""

    simulator: Simulator
    trainer: Trainer
    state: TrainState
    log: tuple[dict[str, Any], ...]
    """One row for each portion of steps: TD errors of every block."""
    _seen: dict[bytes, MomentHeads] = field(default_factory=dict)

    def __repr__(self) -> str:
        config = self.trainer.config
        return (
            f"TrainedMoments({self.simulator.name}, {config.networks} networks, {self.steps:,} of {config.steps:,} "
            f"steps on {len(self.trainer.queries):,} recorded lists; errors are the spread of the networks: compare "
            "some gaps with simulate_gap)"
        )

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(self.state.step)

    @cached_property
    def _heads(self) -> Callable[[Any, Any], Any]:
        return jax.jit(jax.vmap(self.trainer.heads, in_axes=(0, None)))

    def heads(self, state: Any) -> MomentHeads:
        """What each network says of all actions at a state, ``[networks, A]``, in units of rewards."""
        place = self.simulator.snapshot(state)
        key = state_key(self.simulator, place)
        if key not in self._seen:
            stored = self.trainer.encoding.one(as_numbers(self.simulator, place))
            with float32():
                found = self._heads(self.state.average, on_device(stored))
            mean, v, w, d = (np.asarray(part, dtype=np.float64) for part in found)
            size, alive = self.trainer.encoding.units.deviation, not self.simulator.is_over(place)
            mean = mean * size + self.trainer.encoding.units.reward / (1 - self.trainer.queries.discount)
            self._seen[key] = MomentHeads(mean * alive, v * size * alive, w * size * alive, d * size**2 * alive)  # type: ignore[arg-type]
        return self._seen[key]

    def mean_at(self, state: Any, action: Any) -> Estimate:
        """E Z(state, action)."""
        a = self._action(state, action)
        return _estimate(np.asarray(self.heads(state).mean)[:, a])

    def covariance_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """Cov(Z(state, action), Z(state, other))."""
        return _estimate(self._covariances(state)[:, self._action(state, action), self._action(state, other)])

    def second_moment_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """E[Z(state, action) Z(state, other)]."""
        a, b = self._action(state, action), self._action(state, other)
        mean = np.asarray(self.heads(state).mean)
        return _estimate(self._covariances(state)[:, a, b] + mean[:, a] * mean[:, b])

    def covariance_between(self, s: Any, a: Any, t: Any, b: Any) -> Estimate:
        """Cov(Z(s, a), Z(t, b)) of any two coordinates."""
        one, other = (state_key(self.simulator, self.simulator.snapshot(each)) for each in (s, t))
        if one == other:
            return self.covariance_at(s, a, b)
        v, u = self.heads(s).v[:, self._action(s, a)], self.heads(t).v[:, self._action(t, b)]
        return _estimate(np.einsum("rk,rk->r", v, u))

    def gap(self, state: Any, action: Any, other: Any) -> LearnedGap:
        """``Z(state, action) − Z(state, other)``: mean and variance, with the spread of the networks."""
        a, b = self._action(state, action), self._action(state, other)
        label = self.simulator.action_label
        if a == b:
            return LearnedGap(label(a), label(b), 0.0, 0.0, 0.0, 0.0)
        mean, both = np.asarray(self.heads(state).mean), self._covariances(state)
        variance = both[:, a, a] + both[:, b, b] - 2 * both[:, a, b]
        return LearnedGap(label(a), label(b), *_estimate(mean[:, a] - mean[:, b]), *_estimate(variance))

    def table(self) -> list[dict[str, Any]]:
        """The log."""
        return list(self.log)

    def _covariances(self, state: Any) -> Floats:
        """Of all actions at a state, ``[networks, A, A]``."""
        heads = self.heads(state)
        found = np.einsum("rak,rbk->rab", heads.v, heads.v) + np.einsum("rak,rbk->rab", heads.w, heads.w)
        return found + np.einsum("ra,ab->rab", heads.d, np.eye(heads.d.shape[1]))

    def _action(self, state: Any, action: Any) -> int:
        return int(self.simulator.action_index(action, self.simulator.snapshot(state)))


def _estimate(values: Floats) -> Estimate:
    """The mean over networks, and its error."""
    count = len(values)
    if count == 1:
        return Estimate(float(values[0]), math.inf)
    return Estimate(float(values.mean()), student_factor(count) * float(values.std(ddof=1)) / math.sqrt(count))
