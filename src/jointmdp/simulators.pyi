from .decisions.comparing.agent_review import review_agent as review_agent
from .learning.neural.queries import record_queries as record_queries
from .simulation.montecarlo.simulated_hindsight import simulate_hindsight as simulate_hindsight
from .simulation.simulators.atari_simulator import RewardShocks as RewardShocks
from .simulation.simulators.jax_adapters import gymnax_simulator as gymnax_simulator
from .simulation.simulators.jax_adapters import mdpax_simulator as mdpax_simulator
from .simulation.simulators.simulator import Outcome as Outcome
from .simulation.simulators.table_simulator import TableSimulator as TableSimulator
