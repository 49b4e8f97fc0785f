"""Logs as tables, many logs in one call, and tables made of logs."""

import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from test_hindsight import Enumeration, drawn, random_model, random_policy

import jointmdp as jm
from jointmdp.ground.errors import ModelError

WARD = {
    "probabilities": [[0.5, 0.5]] * 3,
    "rewards": [[[1.0, 2.0], [3.0, 2.0]], [[4.0, 0.0], [0.0, 1.0]], [[0.0, 0.0]] * 2],
    "successors": [[[1, 0], [2, 2]], [[2, 1], [0, 2]], [[2, 2]] * 2],
    "discount": 0.9,
    "state_names": ["low", "high", "end"],
    "action_names": ["wait", "order"],
}
LONG = {
    "episode": ["b", "a", "b", "a", "b"],
    "step": [1, 0, 0, 1, 2],
    "state": ["high", "low", "low", "end", "end"],
    "action": ["wait", "wait", "wait", None, None],
    "reward": [4.0, 3.0, 1.0, np.nan, np.nan],
}


def parts(logs: list[jm.Trajectory]) -> list[tuple[Any, ...]]:
    return [(each.episode, each.states, each.actions, each.rewards, each.ended) for each in logs]


def test_one_log_in_every_form(tmp_path: Path) -> None:
    """Columns, a data frame, a file; rows of steps or of episodes, sorted or not, under names of one's own."""
    model = jm.JointMDP(**WARD)
    wanted = [
        ("b", ["low", "high", "end"], ["wait", "wait"], [1.0, 4.0], False),
        ("a", ["low", "end"], ["wait"], [3.0], False),
    ]
    frame = pandas.DataFrame(LONG)
    wide = pandas.DataFrame(
        {
            "id": ["b", "a"],
            "state_0": ["low", "low"],
            "action_0": ["wait", "wait"],
            "reward_0": [1, 3],
            "state_1": ["high", "end"],
            "action_1": ["wait", None],
            "reward_1": [4.0, None],
            "state_2": ["end", None],
        }
    )
    named = frame.rename(columns={"episode": "patient", "state": "Vitals", "action": "treatment", "reward": "paid"})
    names = {"episode": "patient", "state": "Vitals", "action": "treatment", "reward": "paid"}
    frame.to_csv(tmp_path / "long.csv", index=False)
    named.to_csv(tmp_path / "named.csv", index=False, sep=";")
    wide.rename(columns={"id": "episode"}).to_csv(tmp_path / "wide.csv", index=False)
    for source, columns in (
        (LONG, None),
        (frame, None),
        (frame.astype({"state": "category", "step": "Int64"}), None),
        (named, names),
        (tmp_path / "long.csv", None),
        (tmp_path / "named.csv", names),
        (str(tmp_path / "wide.csv"), None),
        (wide, {"episode": "id"}),
        (wide.rename(columns=lambda name: name.replace("state", "x")), {"episode": "id", "state": "x_{}"}),
    ):
        for known in (model, None):
            assert parts(jm.Trajectory.read(source, known, columns=columns)) == wanted


def test_numbers_of_several_types_are_one_state() -> None:
    model = jm.JointMDP(**{**WARD, "state_names": None, "action_names": None})
    table = {
        "state": [0, 1.0, "2", np.int64(0), "1.0", None, None],
        "action": [0, 0, "1", np.float32(1), 0.0, 0, np.nan],
    }
    (found,) = jm.Trajectory.read(table, model)
    assert (found.states, found.actions) == ([0, 1, 2, 0, 1, None], [0, 0, 1, 1, 0, 0])


def test_next_states() -> None:
    """They tell the last state, and what no row tells; a row that says otherwise is named."""
    model = jm.JointMDP(**WARD)
    told = {"state": ["low", "high"], "action": ["wait", "wait"], "next_state": ["high", "end"], "ended": [0, 1]}
    (found,) = jm.Trajectory.read(told, model)
    assert (found.states, found.actions, found.ended) == (["low", "high", "end"], ["wait", "wait"], True)
    (found,) = jm.Trajectory.read({**told, "state": ["low", None], "next_state": ["high", None]}, model)
    assert found.states == ["low", "high"]
    with pytest.raises(
        ModelError, match="row 0: the next_state is 'low', but row 1: the state is 'high'; are they two"
    ):
        jm.Trajectory.read({**told, "next_state": ["low", "end"]}, model)
    with pytest.raises(ModelError, match="row 1: the next_state is 'ned': unknown state 'ned'; did you mean 'end'"):
        jm.Trajectory.read({**told, "next_state": ["high", "ned"]}, model)
    last = {"state": ["low", "end"], "action": ["wait", None], "next_state": ["end", "end"]}
    assert jm.Trajectory.read(last, model)[0].states == ["low", "end"]


def test_what_may_be_a_name_and_what_belongs_to_no_action_are_refused() -> None:
    told = {"state": ["low", "high"], "action": ["wait", "none"], "reward": [1.0, 2.0]}
    with pytest.raises(ModelError, match="row 1: the action is 'none': a name, or nothing"):
        jm.Trajectory.read(told)
    with pytest.raises(ModelError, match=r"row 1: the reward is given, but no action: .* one row too late"):
        jm.Trajectory.read({**told, "action": ["wait", None]})
    assert len(jm.Trajectory.read({**told, "action": ["wait", None], "reward": [1.0, 0.0]})[0]) == 1
    doses = {"state": ["low", "high", "low"], "action": [0, 4, None], "reward": [1.0, 2.0, None]}
    with pytest.raises(ModelError, match=r"are the numbers 0, 4; 1 never occurs: say actions=range\(5\)"):
        jm.envs.estimate_tables(jm.Trajectory.read(doses))


def test_estimated_tables_go_into_bounds() -> None:
    told = {"state": ["low", "high", "low"], "action": ["wait", "treat", "treat"], "reward": [1.0, 0.0, 0.5]}
    logs = jm.Trajectory.read({**told, "next_state": ["high", "low", "end"], "ended": [0, 0, 1]})
    tables = jm.envs.estimate_tables(logs, pseudo_counts=0.5)
    model = tables.model(1.0, "independent", "time")
    for mdp in (tables, tables.transitions):
        ends = jm.bounds.hindsight_bounds(mdp, None, 1.0, "wait", logs[0], "treat", sharing="time", horizon=3)
        assert jm.hindsight(model, "wait", logs[0], "treat", horizon=3).gap.mean in ends
    with pytest.raises(ModelError, match="this is a joint one"):
        jm.bounds.hindsight_bounds(model, None, 1.0, "wait", logs[0], "treat")
    nowhere = jm.Trajectory(["high", "high"], ["treat"], episode="p7")
    with pytest.raises(ModelError, match="episode p7"):
        jm.bounds.hindsight_bounds(tables, None, 1.0, "wait", [logs[0], nowhere], "treat", sharing="time", horizon=3)


def test_rewards_that_are_hardly_ever_equal_are_warned_of_beside_pseudo_counts() -> None:
    rng = np.random.default_rng(0)
    logs = jm.Trajectory.read(
        {"state": ["low"] * 61, "action": ["wait"] * 60 + [None], "reward": [*rng.random(60), None]}
    )
    with pytest.warns(UserWarning, match="60 of 60 outcomes were seen once"):
        jm.envs.estimate_tables(logs, pseudo_counts=1.0)


@pytest.mark.parametrize("names", [[1, 2], [2, 1], ["2", "1"]])
def test_numbers_as_names_mean_the_same_in_tables_and_in_answers(names: list[Any], tmp_path: Path) -> None:
    """Treatments that a table codes 1 and 2: a number is a name to it before it is a place."""
    rng = np.random.default_rng(0)
    treat = rng.integers(1, 3, 60)
    frame = pandas.DataFrame({"episode": range(60), "state": "ill", "action": treat, "reward": 1.0 * (treat == 1)})
    frame["next_state"] = "over"
    path = tmp_path / "coded.csv"
    frame.to_csv(path, index=False)
    for source in (frame, path):
        raw = jm.Trajectory.read(source)
        model = jm.envs.estimate_tables(raw, actions=names).model(1.0)
        for name, truth in (("1", 1.0), ("2", 0.0)):
            study = jm.hindsight(model, name, jm.Trajectory.read(source, model), name).study(resamples=2)
            assert all(study.estimate(each).mean == truth for each in ("counterfactual", "model-based"))
        if names == [1, 2]:  # the number 1 would be the place of treatment 2
            with pytest.raises(
                ModelError, match="is the number 1, which may mean the action called '1' or the one in pl"
            ):
                jm.hindsight(model, "1", [each for each in raw if each.actions == [1]], "1")
        else:
            assert jm.hindsight(model, "1", raw, "1").study(resamples=2).estimate("counterfactual").mean == 1.0
    with pytest.raises(ModelError, match="actions names 'a' twice"):
        jm.envs.estimate_tables(raw, actions=["a", "b", "a"])


def test_a_policy_in_time_goes_on_where_an_episode_was_over() -> None:
    """On for four days, and on each the coin says whether there is another one: 1 + 1/2 + 1/4 + 1/8."""
    mdp = {"on": {"stay": [(0.5, "on", 1.0), (0.5, "off", 1.0)], "quit": [(1.0, "off", 0.0)]}}
    model = jm.from_mdp(mdp, None, 1.0, "gumbel-max", "time")
    stays = np.tile([1.0, 0.0], (4, 2, 1))
    for after in ("stay", "quit"):
        log = jm.Trajectory(["on", "off"], ["quit"], [0.0], ended=True)
        study = jm.hindsight(model, after, [log], other_policy=stays, horizon=4).study(resamples=2)
        assert study.estimate("model-based").mean == study.estimate("counterfactual").mean == 1.875
        assert "stop" not in study.estimate("counterfactual").remark
        going = jm.Trajectory(["on", "on"], ["stay"], [1.0])
        study = jm.hindsight(model, after, [log, going], other_policy=stays, horizon=4).study(resamples=2)
        assert "1 logs stop before the horizon, where policy takes" in study.estimate("counterfactual").remark


def test_sums_that_are_zero_but_for_rounding() -> None:
    """0.1 + 0.2 − 0.3, where the action pays 0 or 1, and 0 with what followed."""
    model = jm.from_mdp({"s": {"a": [(0.5, "x", 0.0), (0.5, "y", 1.0)], "b": [(1.0, "x", 2.0)]}}, None, 1.0)
    log = jm.Trajectory(["s", "x"], ["a"], [0.1 + 0.2 - 0.3])
    assert jm.hindsight(model, "a", log, "b").gap.mean == 2.0
    with pytest.raises(ModelError, match="never pays 1e-09"):
        jm.hindsight(model, "a", jm.Trajectory(["s", "x"], ["a"], [1e-9]), "b")


def test_steps_count_where_no_episode_is_followed_to_its_end() -> None:
    model = jm.from_mdp({"s": {"u": [(1.0, "s", 1.0)], "v": [(1.0, "s", 0.0)]}}, None, 1.0)
    logs = [jm.Trajectory(["s"] * 3, list(a), [float(x == "u") for x in a]) for a in ("uv", "vu", "vv")]
    study = jm.hindsight(model, "u", logs, other_policy="u", horizon=2).study(behaviour="uniform", resamples=2)
    assert study.estimate("per-decision importance sampling").mean == pytest.approx(2 / 3)
    assert "1 of 3 episodes begin" in study.estimate("per-decision importance sampling").remark
    assert np.isnan(study.estimate("weighted importance sampling").mean)


def test_an_episode_that_begins_later_than_others_is_told() -> None:
    table = {"episode": [*"aabbcc"], "step": [0, 1, 0, 1, 1, 2], "state": ["s"] * 6, "action": ["u"] * 6}
    with pytest.warns(UserWarning, match="episode c begins with step 1, episode a with 0"):
        assert len(jm.Trajectory.read(table)) == 3


def test_flags_of_other_libraries() -> None:
    model = jm.JointMDP(**WARD)
    done = {"state": ["low", "high"], "action": ["wait", "wait"], "ended": [False, True]}
    assert jm.Trajectory.read(done, model)[0].ended
    before = {"state": ["low", "high", "end"], "action": ["wait", "wait", None], "ended": [0, 1, None]}
    assert jm.Trajectory.read(before, model)[0].ended


def changed(**columns: Any) -> dict[str, Any]:
    return {**LONG, **columns}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            {"episode": ["p", "p"], "state_0": ["a", "b"], "action_0": ["u", "u"], "state_1": ["b", "c"]},
            "row 1: the episode 'p' has a row already \\(row 0\\)",
        ),
        (changed(step=[1, 0, 0, 1, 3]), r"row 4: the step 3 comes after 1, with a gap \(beside row 0: the step 1\)"),
        (changed(step=[1, 0, 0, 1, 1]), r"row 4: the step 1 is there twice \(beside row 0"),
        (changed(step=[1, 0, 0, None, 2]), r"row 3: the step is missing; columns="),
        (changed(step=[1, 0, 0.5, 1, 2]), r"row 2: the step is 0.5, which is no whole number"),
        (changed(episode=["b", "a", "b", None, "b"]), "row 3: the episode is missing; which episode"),
        (changed(episode=[1, 2, "1", 2, 1]), "row 2: the episode is '1', and 1 in other rows; is it one episode?"),
        (changed(episode=["1.0", 2, "1", 2, 1]), "row 2: the episode is '1', and '1.0' in other rows; is it one"),
        (changed(state=["hihg", "low", "low", "end", "end"]), "row 0: the state is 'hihg': unknown state 'hihg'; did"),
        (changed(state=["high", "low", 0.5, "end", "end"]), "row 2: the state is 0.5, which is no state"),
        (changed(state=["high", "low", None, "end", "end"]), "row 2: the state is missing; the first one"),
        (changed(episode=["b", "a", {}, "a", "b"]), "row 2: the episode is {}, which is no name"),
        (changed(state=["high", "low", {}, "end", "end"]), "row 2: the state is {}, which is no name"),
        (changed(state=["high", "low", np.array(0.5), "end", "end"]), "row 2: the state is 0.5, which is no state"),
        (changed(state=["high", "low", 7, "end", "end"]), "row 2: the state is 7: unknown state 7; there are 3"),
        (changed(action=["stop", "wait", "wait", None, None]), "row 0: the action is 'stop': unknown action"),
        (changed(action=[None, "wait", "wait", None, "wait"]), "row 0: the action is missing; only a last row"),
        (changed(reward=["x", 3, 1, None, None]), "row 0: the reward is 'x', which is no number"),
        (changed(reward=[np.inf, 3, 1, None, None]), "row 0: the reward is inf, which is no number"),
        (changed(scenario=[0.5, 0, 0, None, None]), "row 0: the scenario is 0.5, which is no number of a scenario"),
        (changed(ended=[0, 0, 1, 0, 0]), r"row 2: the ended says that the episode was over, but it goes on"),
        (changed(ended=[0, 0, "dead", 0, 0]), "row 2: the ended is 'dead'; give 1 or 0"),
        (changed(reward=[1.0]), "have 1 or 5 rows"),
        ({"state": [], "action": []}, "holds no steps"),
        ({"vitals": ["low"], "action": ["wait"]}, "no column 'state'; it has vitals, action"),
        ({"episode": [1], "state_0": ["low"], "action_0": ["wait"], "state_2": ["end"]}, "0 and 2, but none for 1"),
        (
            {"state_0": ["low"] * 2, "action_0": ["wait", None], "state_1": ["high", "end"], "action_1": ["wait"] * 2},
            "row 1: the action_0 is missing",
        ),
        (7, "logs are a CSV file, a data frame or columns by name, not int"),
    ],
)
def test_what_is_wrong_with_a_log_is_named_by_row_and_column(table: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        jm.Trajectory.read(table, jm.JointMDP(**WARD))


def test_columns_that_are_not_there() -> None:
    model = jm.JointMDP(**WARD)
    with pytest.raises(ModelError, match="columns names 'sate'; what can be named is episode"):
        jm.Trajectory.read(LONG, model, columns={"sate": "state"})
    with pytest.raises(ModelError, match="no column 'paid'; it has episode, step"):
        jm.Trajectory.read(LONG, model, columns={"reward": "paid"})
    twice = pandas.DataFrame([["low", "wait", "high"]], columns=["state", "action", "state"])
    with pytest.raises(ModelError, match="the data frame has the column 'state' more than once"):
        jm.Trajectory.read(twice, model)


def test_episodes_come_back_in_answers_and_errors() -> None:
    model = jm.JointMDP(**WARD)
    logs = jm.Trajectory.read(LONG, model)
    found = jm.hindsight(model, "wait", logs, other_policy="order", horizon=2)
    assert [row["episode"] for row in found.table()] == ["b", "a"]
    assert [row["episode"] for row in jm.best_in_hindsight(model, logs).table()] == ["b", "a"]
    for ask in (
        lambda logs: jm.hindsight(model, 0, logs, other_policy=1, horizon=2),
        lambda logs: jm.best_in_hindsight(model, logs),
    ):
        with pytest.raises(ModelError, match=r"episode a.* cannot happen in the model: at step 0"):
            ask(jm.Trajectory.read(changed(reward=[4.0, 7.0, 1.0, None, None]), model))


@pytest.mark.slow
def test_a_million_rows(tmp_path: Path) -> None:
    """As a data frame and as a file, in seconds."""
    import tracemalloc

    count = 10**6
    episode = np.repeat(np.arange(count // 10), 10)
    frame = pandas.DataFrame({"episode": episode, "step": np.tile(np.arange(10), count // 10)})
    frame["state"] = np.where(frame.step % 2, "high", "low")
    frame["action"], frame["reward"] = "wait", 1.0
    frame = frame.sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "log.csv", index=False)
    for source in (frame, tmp_path / "log.csv"):
        start = time.perf_counter()
        logs = jm.Trajectory.read(source, jm.JointMDP(**WARD))
        took = time.perf_counter() - start
        assert len(logs) == count // 10
        assert all(each.states[:2] == ["low", "high"] for each in logs)
        assert took < 60  # about 6 s on one idle core
    frame[: count // 10].to_csv(tmp_path / "log.csv", index=False)
    tracemalloc.start()
    jm.Trajectory.read(tmp_path / "log.csv", jm.JointMDP(**WARD), columns={"step": None})
    assert tracemalloc.get_traced_memory()[1] < 10**8  # that is less than a gigabyte for a million rows
    tracemalloc.stop()


# Chances with few digits, so that logs can be listed as often as they would be seen. State 3 is over.
CHANCES = np.array([0.25, 0.75])
BEHAVIOUR = np.array([[0.25, 0.75], [0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])
TARGET = np.array([[0.75, 0.25], [0.25, 0.75], [1.0, 0.0], [1.0, 0.0]])
REWARDS = np.array([[[1, -1], [0, 1]], [[-1, 0], [1, 1]], [[0, 2], [-2, 0]], [[0, 0], [0, 0]]], dtype=float)
SUCCESSORS = np.array([[[1, 2], [2, 3]], [[0, 0], [3, 2]], [[3, 1], [1, 0]], [[3, 3], [3, 3]]])


def small_model(sharing: str = "time") -> jm.JointMDP:
    return jm.JointMDP(np.tile(CHANCES, (4, 1)), REWARDS, SUCCESSORS, 0.5, sharing=sharing)


def all_logs(steps: int) -> list[jm.Trajectory]:
    """Every log of the behaviour from the states 0 and 1, as many times as its probability says."""
    found: list[jm.Trajectory] = []

    def go(states: list[int], actions: list[int], rewards: list[float], times: float) -> None:
        if len(actions) == steps:
            assert times == int(times)
            found.extend([jm.Trajectory(states, actions, rewards)] * int(times))
            return
        s = states[-1]
        for a, w in product(range(2), range(2)):
            if BEHAVIOUR[s, a]:
                more = [*states, int(SUCCESSORS[s, w, a])], [*actions, a], [*rewards, REWARDS[s, w, a]]
                go(*more, times * BEHAVIOUR[s, a] * CHANCES[w])

    for start in (0, 1):
        go([start], [], [], 16.0**steps)
    return found


def value(policy: np.ndarray, steps: int) -> np.ndarray:
    """By the definition, backward."""
    v = np.zeros(4)
    for _ in range(steps):
        v = np.einsum("w,sa,swa->s", CHANCES, policy, REWARDS + 0.5 * v[SUCCESSORS])
    return v


@pytest.mark.parametrize("sharing", ["time", "state", "none"])
def test_all_estimates_are_the_value_where_every_log_is_seen_as_often_as_it_is_likely(sharing: str) -> None:
    """What is conditioned on is averaged out again, what is weighted is weighted back: no estimate is off."""
    model, logs = small_model(sharing), all_logs(2)
    truth = value(TARGET, 2)[:2].mean()
    found = jm.hindsight(model, BEHAVIOUR, logs, other_policy=TARGET, horizon=2)
    for behaviour in (None, BEHAVIOUR):
        study = found.study(behaviour=behaviour, resamples=5)
        assert study.estimate("observed").mean == pytest.approx(value(BEHAVIOUR, 2)[:2].mean(), abs=1e-12)
        assert study.estimate("gap").mean == pytest.approx(truth - value(BEHAVIOUR, 2)[:2].mean(), abs=1e-12)
        names = ("counterfactual", "model-based", "weighted importance sampling", "per-decision importance sampling")
        for name in names:
            assert study.estimate(name).mean == pytest.approx(truth, abs=1e-12), name
        assert (
            abs(study.estimate("counterfactual").mean - truth)
            <= study.estimate("counterfactual").certified_error + 1e-14
        )


def test_logs_of_several_lengths_and_from_a_later_step() -> None:
    """Logs that stop where they are over say the same; and so do those that are seen from their second step on."""
    model, short = small_model(), []
    for each in all_logs(2):
        end = each.states.index(3) if 3 in each.states else 2
        short.append(jm.Trajectory(each.states[: end + 1], each.actions[:end], each.rewards[:end], ended=end < 2))
    later = [each for each in short if len(each) == 2]
    assert 100 < len(later) < len(short)
    then = np.array([each.states[1] for each in later])
    for logs, start, truth in ((short, 0, value(TARGET, 2)[:2].mean()), (later, 1, value(TARGET, 1)[then].mean())):
        found = jm.hindsight(model, BEHAVIOUR, logs, other_policy=TARGET, start=start, horizon=2)
        for behaviour in (None, BEHAVIOUR):
            study = found.study(behaviour=behaviour, resamples=2)
            for each in study.estimates[1:]:
                if each.what != "gap":
                    assert each.mean == pytest.approx(truth, abs=1e-12), (each.what, start)
        total = sum(sum(row[name] for name in row if name not in ("observed", "episodes")) for row in study.outcomes())
        assert total == pytest.approx(len(logs), abs=1e-9)


def test_an_action_and_a_policy_in_time_have_the_same_estimates() -> None:
    model, logs = small_model(), all_logs(2)
    timed = np.stack([TARGET, BEHAVIOUR])
    first = np.einsum("w,wa->a", CHANCES, REWARDS[0] + 0.5 * value(BEHAVIOUR, 1)[SUCCESSORS[0]])[1]
    second = np.einsum("w,wa->a", CHANCES, REWARDS[1] + 0.5 * value(BEHAVIOUR, 1)[SUCCESSORS[1]])[1]
    then = np.einsum("w,sa,swa->s", CHANCES, TARGET, REWARDS + 0.5 * value(BEHAVIOUR, 1)[SUCCESSORS])
    for how, truth in (({"action": 1}, (first + second) / 2), ({"other_policy": timed}, then[:2].mean())):
        study = jm.hindsight(model, BEHAVIOUR, logs, horizon=2, **how).study(resamples=2)
        for each in study.estimates[1:]:
            if each.what != "gap":
                assert each.mean == pytest.approx(truth, abs=1e-12), each.what
    endless = jm.hindsight(model, TARGET, logs, 1).study(resamples=2)
    far = np.einsum("w,swa->sa", CHANCES, REWARDS + 0.5 * value(TARGET, 60)[SUCCESSORS])
    assert endless.estimate("model-based").mean == pytest.approx(far[:2, 1].mean(), abs=1e-12)
    assert "is not over; a horizon says how many steps count" in endless.estimate("weighted importance sampling").remark


def paired_outcomes(steps: int) -> Counter[tuple[float, float, int]]:
    """Seen and other return and last state of the other, by enumeration of both branches on the same scenarios."""
    found: Counter[tuple[float, float, int]] = Counter()

    def go(t: int, x: int, y: int, mine: float, theirs: float, chance: float) -> None:
        if t == steps:
            found[mine, theirs, y] += chance
            return
        for a, b, w in product(range(2), repeat=3):
            more = chance * BEHAVIOUR[x, a] * TARGET[y, b] * CHANCES[w]
            if more:
                paid = mine + 0.5**t * REWARDS[x, w, a], theirs + 0.5**t * REWARDS[y, w, b]
                go(t + 1, int(SUCCESSORS[x, w, a]), int(SUCCESSORS[y, w, b]), *paid, more)

    for start in (0, 1):
        go(0, start, start, 0.0, 0.0, 0.5)
    return found


def test_outcomes_by_enumeration_of_both_branches() -> None:
    """Over all logs, what the logs say of outcomes is the joint law of both."""
    model, logs = small_model(), all_logs(2)
    found = jm.hindsight(model, BEHAVIOUR, logs, other_policy=TARGET, horizon=2)
    words = {-1: "below 0", 0: "0", 1: "above 0"}
    for outcome, label in (
        (None, lambda value, _: words[np.sign(value)]),
        (lambda value: value > 0.5, lambda value, _: str(value > 0.5)),
        (lambda value, state: f"{state} {value < 0}", lambda value, y: f"state {y} {value < 0}"),
    ):
        truth: Counter[tuple[str, str]] = Counter()
        if outcome is not None and outcome.__code__.co_argcount == 2:
            study = found.study(outcome=outcome)
            other = Counter({label(v, y): 0.0 for _, v, y in paired_outcomes(2)})
            for (_, v, y), chance in paired_outcomes(2).items():
                other[label(v, y)] += chance * len(logs)
            rows = study.outcomes()
            for name, count in other.items():
                assert sum(row[name] for row in rows) == pytest.approx(count, abs=1e-9)
            continue
        study = found.study(outcome=outcome)
        for (mine, theirs, y), chance in paired_outcomes(2).items():
            truth[label(mine, 0), label(theirs, y)] += chance * len(logs)
        rows = {row["observed"]: row for row in study.outcomes()}
        for (was, name), count in truth.items():
            assert rows[was][name] == pytest.approx(count, abs=1e-9)
        flipped = sum(count for (was, name), count in truth.items() if was != name)
        assert sum(row["flips"] for row in study.flips()) == pytest.approx(flipped, abs=1e-9)
        table = study.table()
        assert study.undecided() == [row for row in table if 1e-9 < row["flips"] < 1 - 1e-9 or row["is_open"]]
        assert [row["gap"] for row in study.gains()] == sorted((row["gap"] for row in table), reverse=True)


@pytest.mark.parametrize("sharing", ["time", "state", "none"])
def test_the_law_of_each_log_by_enumeration(sharing: str) -> None:
    """Every sequence of scenarios that agrees with a log: what the other branch gets is the gap and what was seen."""
    for seed in range(3):
        model = random_model(seed, sharing)
        policy, rng = random_policy(model, seed), np.random.default_rng(seed)
        logs = [drawn(model, policy, 3, rng) for _ in range(3)]
        blank = [jm.Trajectory([*each.states[:2], None, each.states[3]], each.actions, each.rewards) for each in logs]
        for other in (1, random_policy(model, seed + 9)):
            how = {"action": 1} if isinstance(other, int) else {"other_policy": other}
            laws = jm.hindsight(model, policy, [*logs, *blank], horizon=3, **how).study().laws
            for each, law in zip([*logs, *blank], laws, strict=True):
                truth = Enumeration(model, policy, each, other, 3)
                paid = sum(0.9**t * reward for t, reward in enumerate(each.rewards))
                wanted: Counter[float] = Counter()
                for gap, weight in truth.law.items():
                    wanted[round(gap + paid, 9)] += weight / truth.total
                found: Counter[float] = Counter()
                for value, chance in zip(law.returns, law.chances, strict=True):
                    found[round(float(value), 9)] += chance
                assert set(found) <= set(wanted)
                for key, chance in wanted.items():
                    assert found[key] == pytest.approx(chance, abs=1e-12)


@pytest.mark.parametrize("coupling", ["tables", "gumbel-max"])
def test_laws_of_returns_have_the_moments_of_the_recursion(coupling: str) -> None:
    """The recursion goes backward and knows moments alone; the laws go forward."""
    rng = np.random.default_rng(3)
    for sharing in ("time", "state", "none"):
        if coupling == "tables":
            model = small_model(sharing)
        else:
            kernel = rng.dirichlet(np.ones(4), (4, 2)) * [1, 1, 1, 1]
            kernel[3] = np.eye(4)[3]
            gains = np.round(rng.normal(size=(4, 2, 4)), 1)
            gains[3] = 0
            model = jm.from_mdp(kernel, gains, 0.5, "gumbel-max", sharing)
        first = jm.Trajectory([0], [0])
        seen = jm.hindsight(model, BEHAVIOUR, first, other_policy=BEHAVIOUR, horizon=1).sample(3, seed=1)
        logs = [jm.Trajectory([*each.states, None], [*each.actions, 1], [*each.rewards, None]) for each in seen]
        for how in ({"action": 1}, {"other_policy": TARGET}, {"but": {0: 1}}, {"other_policy": lambda t, s: t % 2}):
            found = jm.hindsight(model, BEHAVIOUR, logs, horizon=4, **how)
            for each, law in zip(found, found.study().laws, strict=True):
                mean = law.returns @ law.chances
                assert law.chances.sum() == pytest.approx(1, abs=1e-12)
                assert mean == pytest.approx(each.other_return.mean, abs=1e-10)
                assert law.chances @ (law.returns - mean) ** 2 == pytest.approx(each.other_return.variance, abs=1e-10)


def test_intervals_are_those_of_scipy() -> None:
    """The same resamples give the same percentiles, to the last bit but those of sums."""
    from scipy import stats

    model, logs = small_model(), all_logs(2)[::11]
    found = jm.hindsight(model, BEHAVIOUR, logs, other_policy=TARGET, horizon=2)
    study = found.study(behaviour=BEHAVIOUR, resamples=400, confidence=0.9, seed=7)
    other = np.array([each.other_return.mean for each in found])
    how = {"n_resamples": 400, "confidence_level": 0.9, "method": "percentile"}
    ends = stats.bootstrap((other,), np.mean, rng=np.random.default_rng(7), **how).confidence_interval
    np.testing.assert_allclose(study.estimate("counterfactual").interval, ends, rtol=1e-12)
    rho = np.array(
        [np.prod([TARGET[s, a] / BEHAVIOUR[s, a] for s, a in zip(x.states, x.actions, strict=False)]) for x in logs]
    )
    G = np.array([x.rewards[0] + 0.5 * x.rewards[1] for x in logs])

    def weighted(one: np.ndarray, two: np.ndarray, axis: int = -1) -> np.ndarray:
        return one.sum(axis=axis) / two.sum(axis=axis)

    done = stats.bootstrap((rho * G, rho), weighted, paired=True, rng=np.random.default_rng(7), **how)
    estimate = study.estimate("weighted importance sampling")
    assert estimate.mean == pytest.approx(weighted(rho * G, rho), abs=1e-13)
    np.testing.assert_allclose(estimate.interval, done.confidence_interval, rtol=1e-12)
    assert f"{rho.sum() ** 2 / (rho**2).sum():.1f} of {len(logs)} episodes" in estimate.remark


def test_frequencies_are_counted_again_in_every_resample() -> None:
    """Two episodes of one step in one state: in a resample of one of them it is all that was ever done."""
    model = small_model()
    logs = [jm.Trajectory([0, 1], [0], [1.0]), jm.Trajectory([0, 2], [1], [-1.0])]
    study = jm.hindsight(model, 0, logs, other_policy=TARGET, horizon=1).study(resamples=300)
    estimate = study.estimate("per-decision importance sampling")
    assert estimate.mean == pytest.approx(0.75 * 1 - 0.25, abs=1e-15)
    assert tuple(estimate.interval) == pytest.approx((-0.25, 0.75), abs=1e-15)  # alone each weighs π(a|s)


def test_what_cannot_be_estimated_is_said() -> None:
    model = small_model()
    logs = [jm.Trajectory([0, 1], [0], [1.0], episode="p1"), jm.Trajectory([0, 2], [1], [-1.0], episode="p2")]

    def remark(found: Any, name: str = "weighted importance sampling") -> str:
        estimate = found.study(resamples=2).estimate(name)
        assert np.isnan(estimate.mean)
        assert np.isnan(estimate.interval.lower)
        return str(estimate.remark)

    assert "depends on the log" in remark(jm.hindsight(model, 0, logs, but={0: 1}, horizon=1), "model-based")
    assert "depends on the log" in remark(jm.best_in_hindsight(model, logs))
    unpaid = [jm.Trajectory([0, 1], [0], episode="p3")]
    assert "rewards of episode p3 were not seen" in remark(
        jm.hindsight(model, 0, unpaid, other_policy=TARGET, horizon=1)
    )
    only = jm.hindsight(model, 0, logs[:1], other_policy=[1, 1, 1, 1], horizon=1)
    assert remark(only) == "no episode does what the other policy does"
    with pytest.raises(ModelError, match="behaviour never takes action 1 in state 0, but episode p2 does at step 0"):
        _ = jm.hindsight(model, 0, logs, other_policy=TARGET, horizon=1).study(behaviour=0).estimates
    with pytest.raises(ModelError, match="one answer for each episode"):
        jm.hindsight(model, 0, all_logs(2)[0], 1, start="each").study()
    endless = jm.hindsight(model, 0, logs, 1).study(resamples=2)
    with pytest.raises(jm.NotKnownError, match="give a horizon"):
        endless.outcomes()
    assert {row["other_outcome"] for row in endless.table()} == {"not known"}
    assert [row["episode"] for row in endless.table()] == ["p1", "p2"]


def test_report_figure_and_files(tmp_path: Path) -> None:
    """Pages hold what the study says; names are text, never markup."""
    model = jm.JointMDP(**{**WARD, "state_names": ["low", "high", "</script><b>"]})
    logs = [
        jm.Trajectory([0, 2], [0], [3.0], episode="<i>p1"),
        jm.Trajectory([0, 1, 2], [0, 0], [1.0, 4.0], episode="p2"),
    ]
    found = jm.hindsight(model, "wait", logs, other_policy="order", horizon=2)
    study = found.study(resamples=10)
    page = found.report(tmp_path / "study.html", title="Order & wait").read_text(encoding="utf-8")
    for words in (
        "Order &amp; wait",
        "&lt;i&gt;p1",
        "per-decision importance sampling",
        "Intervals are sampled",
        "<svg",
    ):
        assert words in page
    assert "<i>p1" not in page
    axes = study.figure().axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()][:2] == ["observed", "counterfactual"]
    assert jm.plots.hindsight_study(study).get_title(loc="left") == "policy instead of what was done"
    study.to_csv(tmp_path / "study.csv")
    assert list(pandas.read_csv(tmp_path / "study.csv").episode) == ["<i>p1", "p2"]
    assert study.to_pandas().shape == (2, 13)
    best = jm.best_in_hindsight(model, [*logs, jm.Trajectory([0, 2], [1], [2.0])])
    assert "instead of" in best.study(resamples=2).gains()[0]["turning"]  # waiting would have paid 3
    assert "turned" not in best.report(tmp_path / "best.html").read_text(encoding="utf-8")[:200]
    assert "intervals are sampled" in repr(study)


def test_tables_are_counts() -> None:
    """By hand, and where every log is seen as often as it is likely, the tables that made them."""
    logs = [
        jm.Trajectory(["well", "ill", "dead"], ["wait", "wait"], [0.0, -1.0], episode=1),
        jm.Trajectory(["ill", "well", "ill"], ["treat", "wait"], [2.0, 0.0], episode=2),
        jm.Trajectory(["ill", "well"], ["wait"], [0.0], episode=3),
        jm.Trajectory(["well", None, "ill"], ["wait", "treat"], [0.0, 0.0], episode=4),
    ]
    tables = jm.envs.estimate_tables(logs)
    assert (tables.state_names, tables.action_names) == (("well", "ill", "dead"), ("wait", "treat"))
    assert tables.counts.tolist() == [[2, 0], [2, 1], [0, 0]]
    assert tables.available.tolist() == [[True, False], [True, True], [True, True]]
    assert tables.is_over.tolist() == [False, False, True]
    np.testing.assert_allclose(tables.behaviour, [[1, 0], [2 / 3, 1 / 3], [0.5, 0.5]])
    assert "2 steps with unseen states left out" in repr(tables)
    assert "3 of 4 tried, 3 fewer than 5 times" in repr(tables)

    def kernel(found: jm.results.EstimatedTables) -> np.ndarray:
        return found.model(0.9).marginal_mdp().transitions

    np.testing.assert_allclose(kernel(tables)[1], [[0.5, 0, 0.5], [1, 0, 0]])
    smooth = jm.envs.estimate_tables(logs, pseudo_counts=0.5)  # of what followed anything in the same state
    assert smooth.available.all()
    np.testing.assert_allclose(kernel(smooth)[1], [[(1.5 + 0.5) / 3.5, 0, 1.5 / 3.5], [2 / 2.5, 0, 0.5 / 2.5]])
    np.testing.assert_allclose(kernel(smooth)[0], [[0, 1, 0], [0, 1, 0]])
    # Outcomes anywhere: ill for 0, dead for −1, well for 2 and for 0.
    everywhere = kernel(jm.envs.estimate_tables(logs, pseudo_counts=0.5, outcomes="all"))
    np.testing.assert_allclose(everywhere[0], [[1 / 4, 2.5 / 4, 0.5 / 4], [1 / 2, 1 / 4, 1 / 4]])
    dead = jm.envs.estimate_tables(logs, never_taken=("dead", -1)).model(0.9)
    assert dead.marginal_mdp().transitions[0, 1].tolist() == [0, 0, 1]
    assert dead.marginal_mdp().rewards[0, 1] == -1
    exact = jm.envs.estimate_tables(all_logs(2), states=range(4)).model(0.5, sharing="none")
    seen = jm.envs.estimate_tables(all_logs(2)).counts.reshape(-1) > 0
    truth = small_model().marginal_mdp()
    np.testing.assert_allclose(
        exact.marginal_mdp().transitions.reshape(8, 4)[seen], truth.kernel.toarray()[seen], atol=1e-12
    )
    np.testing.assert_allclose(exact.marginal_mdp().rewards.ravel()[seen], truth.rewards.ravel()[seen], atol=1e-12)


def test_ends_whose_state_was_not_seen() -> None:
    logs = [jm.Trajectory([0, 1], [0, 0], [1.0, 2.0], ended=True), jm.Trajectory([1, 0, 1], [0, 1], [1.0, 0.0])]
    tables = jm.envs.estimate_tables(logs)
    assert tables.state_names == ("0", "1", "over")
    model = tables.model(1.0, "gumbel-max", "time")
    found = jm.hindsight(model, [0, 0, 0], logs, other_policy=[1, 0, 0], horizon=2)
    assert found[0].path[2, 2] == 1  # both do the same in 1, which ended the episode
    assert found[0].question.seen.ended
    with pytest.raises(ModelError, match="trajectory 0 ended in 1, but in other logs something is done there"):
        jm.envs.estimate_tables([jm.Trajectory([0, 1], [0], [1.0], ended=True), logs[1]])


def test_draws_have_the_moments_of_dirichlet_laws() -> None:
    """Within five standard errors of 400 draws at fixed seeds, for whole counts and for tiny pseudo-counts."""
    for pseudo in (0.0, 0.02, 1.5):
        logs = all_logs(1)[::3]
        tables = jm.envs.estimate_tables(logs, pseudo_counts=pseudo, outcomes="all")
        draws = np.array([tables._chances(seed) for seed in range(400)])
        rows = tables.table()
        listed = np.flatnonzero(~tables.is_over[tables.outcomes.owner // 2])
        mean, std = (np.array([row[name] for row in rows]) for name in ("probability", "std"))
        alpha = np.array([row["count"] for row in rows]) + pseudo
        total = np.array(
            [
                sum(
                    a
                    for a, r in zip(alpha, rows, strict=True)
                    if (r["state"], r["action"]) == (row["state"], row["action"])
                )
                for row in rows
            ]
        )
        np.testing.assert_allclose(mean, alpha / total, atol=1e-14)
        np.testing.assert_allclose(std, np.sqrt(mean * (1 - mean) / (total + 1)), atol=1e-14)
        assert np.all(np.abs(draws[:, listed].mean(axis=0) - mean) <= 5 * std / 20 + 1e-12)
        assert np.array_equal(draws[7], tables._chances(7))


def test_the_spread_over_tables_is_that_of_a_beta_law() -> None:
    """One step whose mean is a probability with a Beta law: percentiles of draws beside its quantiles."""
    from scipy import stats

    logs = [jm.Trajectory(["s", "won"], ["go"], [1.0])] * 7 + [jm.Trajectory(["s", "lost"], ["go"], [0.0])] * 3
    tables = jm.envs.estimate_tables(logs, pseudo_counts=0.5)

    def ask(model: jm.JointMDP) -> Any:
        return jm.hindsight(model, 0, logs, other_policy=0, horizon=1)

    law, n = stats.beta(7.5, 3.5), 400
    free = tables.spread(lambda model: float(model.marginal_mdp().rewards[0, 0]), 0.9, draws=n, confidence=0.9)
    (row,) = free.rows
    for end, q in zip(row.interval, (0.05, 0.95), strict=True):
        assert abs(end - law.ppf(q)) <= 5 * np.sqrt(q * (1 - q) / n) / law.pdf(law.ppf(q))
    assert abs(row.mean - law.mean()) <= 5 * law.std() / np.sqrt(n)
    spread = tables.spread(ask, 0.9, "gumbel-max", draws=4)
    assert spread.names == ("counterfactual", "gap", "model-based")
    assert "sampled" in repr(spread)
    # The same policy on the same noise is what was seen, whatever the tables; foresight hangs on them.
    known = {each.what: each for each in spread.rows}
    assert known["counterfactual"].std == pytest.approx(0, abs=1e-12)
    assert known["model-based"].std > 0.01
    assert len(spread.table()) == 3
    two = tables.spread(lambda model: {"a": 1.0, "b": 2}, 0.9, draws=2)
    assert [(each.what, each.mean) for each in two.rows] == [("a", 1.0), ("b", 2.0)]


@pytest.mark.parametrize(
    ("logs", "how", "words"),
    [
        ([jm.Trajectory([0], [0])], {}, "the trajectory has no rewards, which tables need"),
        ([jm.Trajectory([0], [0], [1.0])], {}, "no step whose outcome was seen"),
        ([jm.Trajectory([0], [])], {}, "the logs hold no actions"),
        ([jm.Trajectory([0, 1, 0], [0, 0], [1.0, None], episode="e")], {}, "reward 1 of episode e is missing"),
        ([jm.Trajectory([0, "x"], [0], [1.0])], {}, "the states of the logs are numbers, but there is 'x' as well"),
        ([jm.Trajectory([0, 10**30], [0], [1.0])], {}, f"are numbers, but there is {10**30} as well"),
        ([jm.Trajectory([0, 1], [0], [1.0])], {"states": [0]}, "the logs have the state 1, which is not among"),
        ([jm.Trajectory([0, 1], [0], [1.0])], {"pseudo_counts": -1}, "pseudo_counts is -1; it must be finite and not"),
        (
            [jm.Trajectory([0, 1], [0], [1.0])],
            {"outcomes": "none"},
            'outcomes is \'none\'; it must be "state" or "all"',
        ),
    ],
)
def test_logs_that_make_no_tables(logs: list[jm.Trajectory], how: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        jm.envs.estimate_tables(logs, **how)
