"""The public names of this room and where they live: `__init__.py` loads a name from here when it is first used."""

from .learned import BlockVisits as BlockVisits
from .learned import Learned as Learned
from .learned import LearnedJoint as LearnedJoint
from .learned import LearnedStates as LearnedStates
from .learner_runs import answers as answers
from .learner_runs import learn_joint_moments as learn_joint_moments
from .recursion import Info as Info
from .recursion import Sample as Sample
from .recursion import State as State
from .replicas import Estimate as Estimate
from .replicas import LearnedGap as LearnedGap
from .settings import LearnOptions as LearnOptions
from .settings import Polynomial as Polynomial
from .simulator_learner import SimulatorLearner as SimulatorLearner
from .table_learner import TableLearner as TableLearner
