"""Where only some states were asked about: laws on the part of the model that they lead to, and what is not held."""

from jointmdp.arrays import Floats
from jointmdp.errors import NotKnownError
from jointmdp.law.reached_pairs import GapBranches
from jointmdp.law.solution_laws import Laws
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.reached_states import ReachedPart
from jointmdp.moments.listed_moments import ListedMoments
from jointmdp.moments.stored_moments import StoredMoments


def _closed_part(moments: StoredMoments) -> ReachedPart | None:
    """A part that has all that the asked states lead to; None where there is none, or something was left out."""
    part = moments.part if isinstance(moments, ListedMoments) else None
    return part if part is not None and part.outside is None else None


def laws_of(model: JointMDP, policy: Floats, moments: StoredMoments, mean_errors: Floats, horizon: int | None) -> Laws:
    """The laws of the gaps of a solution, on the part that is enough where there is one."""
    mean, part = moments.mean, _closed_part(moments)
    if part is not None:
        model, policy, mean, mean_errors = part.model, part.policy, mean[part.states], mean_errors[part.states]
    return Laws(GapBranches(model, policy, policy, can_merge=True), horizon, mean, mean_errors)


def law_state(moments: StoredMoments, state: int) -> int:
    """The index of a state in the model of the laws; it must have been asked about."""
    if not isinstance(moments, ListedMoments):
        return state
    place = moments.place(state)
    return state if _closed_part(moments) is None else place


def check_whole(asked: int, count: int, what: str) -> None:
    """Refuse what shows every state where only some were asked about."""
    if asked < count:
        raise NotKnownError(
            f"{what} shows every state, and {asked:,} of {count:,} were asked about; gap(...), table() and "
            "best_action(...) answer for these, evaluate(...) without states for all"
        )
