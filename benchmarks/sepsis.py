"""A sepsis-like model of 1,440 states and 8 actions, written after the description in Oberst and Sontag (ICML 2019).

A patient has a heart rate and a blood pressure (low, normal, high), a level of oxygen (low, normal), a level of glucose
(five steps) and may be diabetic. Each step decides on antibiotics, a vasopressor and ventilation. A treatment pushes
what it acts on, taking it away pushes back, and what nothing acts on goes up or down by chance. Three vitals out of
order are death, paid −1; all in order without treatment is discharge, paid +1; both end the episode. Probabilities are
those of the description as far as it gives them. Each vital has a noise of its own, one uniform number, shared by all
actions and by all branches at the same time.
"""

from itertools import product

import numpy as np
import scipy.sparse as sp

import jointmdp as jm

# Diabetic; heart rate, pressure, oxygen, glucose; antibiotics, vasopressor, ventilation.
SIZES = (2, 3, 3, 2, 5, 2, 2, 2)


def _moves(size: int, changes: dict[tuple[int, int], float]) -> np.ndarray:
    """A kernel with these probabilities of going from one value to another; else it stays."""
    kernel = np.zeros((size, size))
    for (start, end), chance in changes.items():
        kernel[start, end] = chance
    kernel[np.arange(size), np.arange(size)] = 1 - kernel.sum(axis=1)
    return kernel


def _chance(size: int, p: float) -> np.ndarray:
    """Up or down by one with probability p each."""
    return _moves(size, {(i, j): p for i in range(size) for j in (i - 1, i + 1) if 0 <= j < size})


def _kernels(
    diabetic: int, before: tuple[int, ...], now: tuple[int, ...], *, is_published: bool = False
) -> list[np.ndarray]:
    """Of heart rate, pressure, oxygen and glucose, by treatments before and now.

    In the program that the published figures come from, taking antibiotics away lifts the pressure with 0.1, glucose
    stands still under a vasopressor, and what lifts it by chance in patients who are not diabetic brings it to the
    second lowest of the five levels, from wherever it was.
    """
    (drug, vaso, vent), (drug_now, vaso_now, vent_now) = before, now
    eases = _moves(3, {(2, 1): 0.5})
    rate = eases if drug_now else _moves(3, {(1, 2): 0.1}) if drug else _chance(3, 0.1)
    acts = [eases] if drug_now else [_moves(3, {(1, 2): 0.1 if is_published else 0.5})] if drug else []
    if vaso_now:
        acts.append(_moves(3, {(0, 1): 0.5, (0, 2): 0.4, (1, 2): 0.9} if diabetic else {(0, 1): 0.7, (1, 2): 0.7}))
    elif vaso:
        falls = 0.05 if diabetic else 0.1
        acts.append(_moves(3, {(1, 0): falls, (2, 1): falls}))
    pressure = np.linalg.multi_dot([np.eye(3), *acts]) if acts else _chance(3, 0.1)
    oxygen = _moves(2, {(0, 1): 0.7}) if vent_now else _moves(2, {(1, 0): 0.1}) if vent else _chance(2, 0.1)
    rises = vaso_now and diabetic
    glucose = _moves(5, {(i, i + 1): 0.5 for i in range(4)}) if rises else _chance(5, 0.3 if diabetic else 0.1)
    if is_published and not diabetic:
        glucose = np.eye(5) if vaso_now else 0.8 * np.eye(5)
        for level in range(0 if vaso_now else 5):
            glucose[level, max(level - 1, 0)] += 0.1
            glucose[level, 1] += 0.1
    return [rate, pressure, oxygen, glucose]


def abnormal(rate: np.ndarray, pressure: np.ndarray, oxygen: np.ndarray, glucose: np.ndarray) -> np.ndarray:
    return (rate != 1).astype(int) + (pressure != 1) + (oxygen != 1) + (glucose != 2)


def ordinary_sepsis(*, is_published: bool = False) -> tuple[list[sp.csr_array], list[sp.csr_array]]:
    """The transition probabilities of each action, and what they pay, each ``[S, S]``: an ordinary MDP.

    As published nothing ends: the physicians' policy is the best for a model in which death and discharge pay whenever
    they come.
    """
    treatments, count = list(product((0, 1), repeat=3)), int(np.prod(SIZES))
    vitals = np.stack(np.unravel_index(np.arange(90), SIZES[1:5]))
    bad = abnormal(*vitals)
    matrices, rewards = [], []
    for a, now in enumerate(treatments):
        paid = np.where(bad >= 3, -1.0, np.where((bad == 0) & (a == 0), 1.0, 0.0))
        rows: list[np.ndarray] = []
        for diabetic, at, before in product((0, 1), range(90), treatments):
            row = np.zeros((2, 90, 8))
            if not is_published and (bad[at] >= 3 or (bad[at] == 0 and not any(before))):
                row[diabetic, at, treatments.index(before)] = 1.0
            else:
                by_vital = _kernels(diabetic, before, now, is_published=is_published)
                parts = [kernel[x[at]] for kernel, x in zip(by_vital, vitals, strict=True)]
                row[diabetic, :, a] = np.einsum("a,b,c,d->abcd", *parts).ravel()
            rows.append(row.ravel())
        kernel = sp.csr_array(np.array(rows))
        gains = kernel.copy()
        ends = np.repeat((bad >= 3) | (bad == 0), 8) & np.tile(np.array([not any(t) for t in treatments]), 90)
        over = np.tile(np.repeat(bad >= 3, 8) | ends, 2)
        gains.data = np.tile(np.repeat(paid, 8), 2)[kernel.indices]
        if not is_published:
            gains.data[np.repeat(over, np.diff(kernel.indptr))] = 0.0
        matrices.append(kernel)
        rewards.append(gains)
    assert matrices[0].shape == (count, count)
    return matrices, rewards


def sepsis(discount: float = 0.99) -> jm.JointMDP:
    """The model, with sharing in time."""
    treatments = list(product((0, 1), repeat=3))
    rows: list[set[float]] = [set() for _ in range(4)]
    kernels = {}
    for diabetic, before, now in product((0, 1), treatments, treatments):
        kernels[diabetic, before, now] = _kernels(diabetic, before, now)
        for points, kernel in zip(rows, kernels[diabetic, before, now], strict=True):
            points |= set(np.round(np.cumsum(kernel, axis=1), 12).ravel())
    edges = [np.array(sorted({0.0, *points, 1.0})) for points in rows]
    middles = [(each[1:] + each[:-1]) / 2 for each in edges]
    cells = np.stack(np.meshgrid(*(np.arange(len(each)) for each in middles), indexing="ij"), axis=-1).reshape(-1, 4)
    chances = np.prod([np.diff(each)[cells[:, i]] for i, each in enumerate(edges)], axis=0)
    count, scenarios = int(np.prod(SIZES)), len(cells)
    successors = np.zeros((count, scenarios, 8), dtype=np.int32)
    rewards = np.zeros((count, scenarios, 8))
    for s in range(count):
        diabetic, *vitals_treatments = np.unravel_index(s, SIZES)
        vitals, before = vitals_treatments[:4], tuple(int(x) for x in vitals_treatments[4:])
        bad = abnormal(*(np.array(x) for x in vitals))
        if bad >= 3 or (bad == 0 and not any(before)):
            successors[s] = s
            continue
        for a, now in enumerate(treatments):
            after = []
            for i, kernel in enumerate(kernels[int(diabetic), before, now]):
                ends = np.round(np.cumsum(kernel[vitals[i]]), 12)
                after.append(np.minimum(np.searchsorted(ends, middles[i]), len(ends) - 1)[cells[:, i]])
            full = [np.full(scenarios, diabetic), *after, *(np.full(scenarios, x) for x in now)]
            successors[s, :, a] = np.ravel_multi_index(full, SIZES)
            bad = abnormal(*after)
            rewards[s, :, a] = np.where(bad >= 3, -1.0, np.where((bad == 0) & (not any(now)), 1.0, 0.0))
    return jm.JointMDP(np.tile(chances, (count, 1)), rewards, successors, discount, sharing="time")
