"""What would the other actions have brought, under the same luck?

``solution = jointmdp.evaluate(model, policy)`` gives the joint moments of the returns of all actions;
``solution.gap(state, action, other)`` compares two of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jointmdp.auditor import AuditReport as AuditReport
    from jointmdp.auditor import audit as audit
    from jointmdp.bounds import MomentBounds as MomentBounds
    from jointmdp.bounds import cantelli as cantelli
    from jointmdp.certificates import Certificate as Certificate
    from jointmdp.comparing.comparison import Comparison as Comparison
    from jointmdp.comparing.comparison import compare as compare
    from jointmdp.couplings import from_gymnasium as from_gymnasium
    from jointmdp.couplings import from_mdp as from_mdp
    from jointmdp.couplings import from_noise as from_noise
    from jointmdp.couplings import from_sampler as from_sampler
    from jointmdp.couplings_mdpax import from_mdpax as from_mdpax
    from jointmdp.envs.examples import anticorrelated_rewards as anticorrelated_rewards
    from jointmdp.envs.examples import machine_replacement as machine_replacement
    from jointmdp.envs.examples import shared_successors as shared_successors
    from jointmdp.envs.gusty_cartpole import gusty_cartpole as gusty_cartpole
    from jointmdp.envs.registry import as_simulator as as_simulator
    from jointmdp.envs.tabular import coupled_reward_chain as coupled_reward_chain
    from jointmdp.envs.tabular import inventory as inventory
    from jointmdp.envs.tabular import windy_gridworld as windy_gridworld
    from jointmdp.errors import ConvergenceError as ConvergenceError
    from jointmdp.errors import ConvergenceWarning as ConvergenceWarning
    from jointmdp.errors import ModelError as ModelError
    from jointmdp.errors import Status as Status
    from jointmdp.exact import Iterate as Iterate
    from jointmdp.exact import Solve as Solve
    from jointmdp.exact import evaluate as evaluate
    from jointmdp.files import load as load
    from jointmdp.files import save as save
    from jointmdp.gaps import Gap as Gap
    from jointmdp.incremental import Learned as Learned
    from jointmdp.incremental import learn as learn
    from jointmdp.intervals import Interval as Interval
    from jointmdp.joint import JointMoments as JointMoments
    from jointmdp.joint import joint_moments as joint_moments
    from jointmdp.law.book import Signs as Signs
    from jointmdp.law.gap import GapLaw as GapLaw
    from jointmdp.model import JointMDP as JointMDP
    from jointmdp.montecarlo import GapSample as GapSample
    from jointmdp.montecarlo import ReturnSample as ReturnSample
    from jointmdp.policies import uniform_policy as uniform_policy
    from jointmdp.rankings import BestAction as BestAction
    from jointmdp.rankings import best_action as best_action
    from jointmdp.simulation import simulate_gap as simulate_gap
    from jointmdp.simulation import simulate_gaps as simulate_gaps
    from jointmdp.simulation import simulate_returns as simulate_returns
    from jointmdp.simulators.functions import FunctionSimulator as FunctionSimulator
    from jointmdp.simulators.gym.simulator import GymnasiumSimulator as GymnasiumSimulator
    from jointmdp.simulators.jax_simulator import JaxSimulator as JaxSimulator
    from jointmdp.simulators.jax_simulator import gymnax_simulator as gymnax_simulator
    from jointmdp.simulators.noise import Noise as Noise
    from jointmdp.simulators.simulator import Outcome as Outcome
    from jointmdp.simulators.simulator import Simulator as Simulator
    from jointmdp.simulators.tables import TableSimulator as TableSimulator
    from jointmdp.solution import Solution as Solution

# Where each public name lives. Names load on first use, so that `jointmdp --help` does not wait for JAX.
_HOMES = {
    "auditor": "AuditReport audit",
    "bounds": "MomentBounds cantelli",
    "certificates": "Certificate",
    "comparing.comparison": "Comparison compare",
    "couplings": "from_gymnasium from_mdp from_noise from_sampler",
    "couplings_mdpax": "from_mdpax",
    "envs.examples": "anticorrelated_rewards machine_replacement shared_successors",
    "envs.gusty_cartpole": "gusty_cartpole",
    "envs.registry": "as_simulator",
    "envs.tabular": "coupled_reward_chain inventory windy_gridworld",
    "errors": "ConvergenceError ConvergenceWarning ModelError Status",
    "exact": "Iterate Solve evaluate",
    "files": "load save",
    "gaps": "Gap",
    "incremental": "Learned learn",
    "intervals": "Interval",
    "joint": "JointMoments joint_moments",
    "law.book": "Signs",
    "law.gap": "GapLaw",
    "model": "JointMDP",
    "montecarlo": "GapSample ReturnSample",
    "policies": "uniform_policy",
    "rankings": "BestAction best_action",
    "simulation": "simulate_gap simulate_gaps simulate_returns",
    "simulators.functions": "FunctionSimulator",
    "simulators.gym.simulator": "GymnasiumSimulator",
    "simulators.jax_simulator": "JaxSimulator gymnax_simulator",
    "simulators.noise": "Noise",
    "simulators.simulator": "Outcome Simulator",
    "simulators.tables": "TableSimulator",
    "solution": "Solution",
}
_MODULE_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__version__ = "0.1.0"
__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name in ("bounds", "executors"):  # rooms that are useful by themselves
        return importlib.import_module(f"jointmdp.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'jointmdp' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"jointmdp.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
