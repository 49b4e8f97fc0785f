from .simulation.executors import Executor as Executor
from .simulation.executors import Processes as Processes
from .simulation.executors import RayExecutor as RayExecutor
from .simulation.executors import Serial as Serial
from .simulation.executors import WorkerError as WorkerError
from .simulation.executors import as_executor as as_executor
from .simulation.executors import opened as opened
