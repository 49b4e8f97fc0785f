"""Learning joint moments from samples: incremental JIPE-2 and JIPE-n, for tables and for any simulator."""

from jointmdp.incremental.answers import BlockVisits, Learned, LearnedJoint
from jointmdp.incremental.atlas import LearnedStates
from jointmdp.incremental.backups import Sample
from jointmdp.incremental.discovery import SimulatorLearner
from jointmdp.incremental.front import answers, learn
from jointmdp.incremental.learner import Info, State
from jointmdp.incremental.replicas import Estimate, LearnedGap
from jointmdp.incremental.schedules import Polynomial
from jointmdp.incremental.settings import Options
from jointmdp.incremental.tables import TableLearner

__all__ = [
    "BlockVisits",
    "Estimate",
    "Info",
    "Learned",
    "LearnedGap",
    "LearnedJoint",
    "LearnedStates",
    "Options",
    "Polynomial",
    "Sample",
    "SimulatorLearner",
    "State",
    "TableLearner",
    "answers",
    "learn",
]
