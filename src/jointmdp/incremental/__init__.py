"""Learning joint moments from samples: incremental JIPE-2 and JIPE-n, for tables and for any simulator."""

from jointmdp.bellman.sample_backups import Sample
from jointmdp.incremental.learned import BlockVisits, Learned, LearnedJoint, LearnedStates
from jointmdp.incremental.learner_runs import answers, learn_joint_moments
from jointmdp.incremental.options import LearnOptions
from jointmdp.incremental.recursion import Info, State
from jointmdp.incremental.replicas import Estimate, LearnedGap
from jointmdp.incremental.simulator_learner import SimulatorLearner
from jointmdp.incremental.step_sizes import Polynomial
from jointmdp.incremental.table_learner import TableLearner

__all__ = [
    "BlockVisits",
    "Estimate",
    "Info",
    "LearnOptions",
    "Learned",
    "LearnedGap",
    "LearnedJoint",
    "LearnedStates",
    "Polynomial",
    "Sample",
    "SimulatorLearner",
    "State",
    "TableLearner",
    "answers",
    "learn_joint_moments",
]
