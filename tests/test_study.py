"""Logs as tables, many logs in one call, and tables made of logs."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

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
        (changed(step=[1, 0, 0, 1, 3]), r"row 4: the step 3 comes after 1, with a gap \(beside row 0: the step 1\)"),
        (changed(step=[1, 0, 0, 1, 1]), r"row 4: the step 1 is there twice \(beside row 0"),
        (changed(step=[1, 0, 0, None, 2]), r"row 3: the step is missing; columns="),
        (changed(step=[1, 0, 0.5, 1, 2]), r"row 2: the step is 0.5, which is no whole number"),
        (changed(episode=["b", "a", "b", None, "b"]), "row 3: the episode is missing; which episode"),
        (changed(episode=[1, 2, "1", 2, 1]), "row 2: the episode is '1', which is text in some rows and a number in"),
        (changed(state=["hihg", "low", "low", "end", "end"]), "row 0: the state is 'hihg': unknown state 'hihg'; did"),
        (changed(state=["high", "low", 0.5, "end", "end"]), "row 2: the state is 0.5, which is no state"),
        (changed(state=["high", "low", None, "end", "end"]), "row 2: the state is missing; the first one"),
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
    found = jm.hindsight(model, "wait", logs, "order")
    assert [row["episode"] for row in found.table()] == ["b", "a"]
    assert [row["episode"] for row in jm.best_in_hindsight(model, logs).table()] == ["b", "a"]
    for ask in (lambda logs: jm.hindsight(model, 0, logs, "order"), lambda logs: jm.best_in_hindsight(model, logs)):
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
    tracemalloc.start()
    jm.Trajectory.read(tmp_path / "log.csv", jm.JointMDP(**WARD))
    assert tracemalloc.get_traced_memory()[1] < 10**9
