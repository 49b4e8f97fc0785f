from .exact.law.gap_law import LawStatus as LawStatus
from .exact.moments.certificates import Status as Status
from .ground.errors import ConvergenceError as ConvergenceError
from .ground.errors import ConvergenceWarning as ConvergenceWarning
from .ground.errors import LostProcessError as LostProcessError
from .ground.errors import ModelError as ModelError
from .ground.errors import NoiseWarning as NoiseWarning
from .ground.errors import NotKnownError as NotKnownError
