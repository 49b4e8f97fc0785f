"""Files: what is saved comes back bit for bit, and whatever happens to a file is noticed."""

import codecs
import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import textwrap
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo import SHARINGS, build, cases, slow_or_long

import jointmdp as jm
from jointmdp.exact.moments.stored_moments import PairMoments, StateMoments
from jointmdp.ground import archives, files
from jointmdp.ground.files import write_file
from jointmdp.show import saving
from jointmdp.show.plots import style
from jointmdp.show.saving import load, save

NAMES = ["plain", "größer", "状態", "🎲 dice", 'quote" \\ and\nnewline', "\u0000", "e\u0301", "\u202e"]
GROWTH = 2**30  # bytes by which a mutated file may make the process grow


# -- helpers ---------------------------------------------------------------------------------------------------


def bits(array: np.ndarray) -> tuple[object, ...]:
    return array.dtype, array.shape, array.tobytes()


def model_key(model: jm.JointMDP) -> tuple[object, ...]:
    """All that a model is."""
    arrays = (model.probabilities, model.rewards, model.successors, model.available)
    return (*map(bits, arrays), model.discount, model.sharing, model.state_names, model.action_names)


def key(thing: jm.JointMDP | jm.results.Solution) -> tuple[object, ...]:
    """All that a model or a solution is."""
    if isinstance(thing, jm.JointMDP):
        return model_key(thing)
    moments, certificate = thing.moments, thing.certificate
    assert isinstance(moments, StateMoments | PairMoments)
    parts = {**moments.parts(), "mean": moments.mean}
    scalars = [getattr(certificate, name).hex() for name in saving.CERTIFIED]
    return (
        *model_key(thing.model),
        bits(thing.policy),
        type(moments),
        tuple((name, *bits(part)) for name, part in sorted(parts.items())),
        *scalars,
        bits(certificate.mean_errors),
        bits(certificate.covariance_shares),
        thing.status,
        thing.method,
        thing.steps,
        thing.horizon,
        bits(thing.history),
    )


def small_model() -> jm.JointMDP:
    return jm.JointMDP(
        [[0.25, 0.75], [1.0, 0.0]],
        [[[1.0, -0.0], [0.1, 2.0]], [[3.0, 1e-300], [0.0, 7.0]]],
        [[[0, 1], [1, 0]], [[1, 1], [0, 0]]],
        0.9,
        available=[[True, True], [True, False]],
        state_names=["links", "右"],
    )


def small_solution() -> jm.results.Solution:
    return jm.evaluate(small_model(), [[0.5, 0.5], [1.0, 0.0]], jm.Iterate(tolerance=1e-3))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.jointmdp"
    save(small_model(), path)
    return path


def outcome(path: Path, data: bytes) -> tuple[object, ...] | None:
    """What a file with this content loads as; None when it is refused."""
    path.write_bytes(data)
    try:
        return key(load(path))
    except jm.ModelError:
        return None


def sealed(data: bytes) -> bytes:
    """The file with its digest renewed, as a forger leaves it."""
    body = data[: -archives.DIGITS]
    return body + hashlib.sha256(body).hexdigest().encode()


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forged(parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A file with any members whatever, whose checksums are all in order."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        archive.comment = archives.SEAL + b"0" * archives.DIGITS
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return sealed(made.getvalue())


def with_page(data: bytes, **changes: object) -> bytes:
    """The file with other entries in its page; `...` takes one out."""
    parts = members(data)
    page = {**json.loads(parts[archives.PAGE]), **changes}
    page = {name: value for name, value in page.items() if value is not ...}
    return forged({**parts, archives.PAGE: json.dumps(page).encode()})


def peak() -> int:
    """The most memory this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# -- round trips -----------------------------------------------------------------------------------------------


def test_models_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "no suffix is added"
    for case in cases(11, 60):
        model = build(case)
        save(model, path)
        found = load(path)
        assert isinstance(found, jm.JointMDP)
        assert key(found) == key(model)
        assert found == model
        assert found.probabilities.strides == model.probabilities.strides
        assert not any(array.flags.writeable for array in (found.probabilities, found.rewards, found.successors))
    assert os.listdir(tmp_path) == [path.name]


def test_single_precision_tables_and_odd_layouts_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        S, W, A = rng.integers(1, 9, size=3)
        weights = rng.random((W, S)).astype(np.float32).T
        chances = weights / weights.sum(axis=1, keepdims=True, dtype=np.float32)  # sums to 1 only roughly
        rewards = np.moveaxis(rng.normal(size=(A, S, W)), 0, 2)
        model = jm.JointMDP(chances, rewards, rng.integers(S, size=(S, W, A)), 1.0)
        save(model, tmp_path / "m")
        assert key(load(tmp_path / "m")) == key(model)


@pytest.mark.parametrize("names", [NAMES, ["", " "]])
def test_names_in_any_script_come_back(tmp_path: Path, names: list[str]) -> None:
    n = len(names)
    model = jm.JointMDP(np.ones((n, 1)), np.zeros((n, 1, n)), np.zeros((n, 1, n)), 0.5, "none", state_names=names)
    both = jm.JointMDP(np.ones((n, 1)), np.zeros((n, 1, n)), np.zeros((n, 1, n)), 0.5, action_names=names[::-1])
    for one in (model, both):
        save(one, tmp_path / "名前")
        assert key(load(tmp_path / "名前")) == key(one)


def test_tuples_come_back_as_tuples(tmp_path: Path) -> None:
    names = [(0, "a"), (1.5, (True, None)), "text"]
    model = jm.JointMDP(np.ones((3, 1)), np.zeros((3, 1, 3)), np.zeros((3, 1, 3)), 0.5, state_names=names)
    save(model, tmp_path / "m")
    found = load(tmp_path / "m")
    assert found == model
    assert found.state_names == tuple(names)
    assert [type(part) for part in found.state_names[1]] == [float, tuple]
    odd = jm.JointMDP(np.ones((1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), 0.5, state_names=[frozenset()])
    with pytest.raises(jm.ModelError, match=r"name frozenset\(\) cannot be saved"):
        save(odd, tmp_path / "m")
    assert load(tmp_path / "m") == model


def test_half_a_character_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model = jm.JointMDP([[1.0]], [[[0.0]]], [[[0]]], 0.5, state_names=["\ud83d"])
    with pytest.raises(jm.ModelError, match="half of a character"):
        save(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def solutions(seed: int, count: int, **kinds: Any) -> Iterator[jm.results.Solution]:
    for case in cases(seed, count, discounts=(0.5, 0.9), **kinds):
        model = build(case)
        yield jm.evaluate(model, case.policy)
        yield jm.evaluate(model, case.policy, jm.Iterate(tolerance=1e-4))
        yield jm.evaluate(model.with_discount(1.0), case.policy, horizon=3)
        yield jm.evaluate(model, case.policy, order=4)
        yield jm.evaluate(model.with_discount(1.0), case.policy, horizon=3, order=3)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    ("seed", "count", "kinds"),
    [
        (12, 3, {"shapes": ((3, 3, 3),)}),
        pytest.param(13, 6, {"shapes": ((2, 2, 2), (6, 4, 4))}, marks=pytest.mark.long),
    ],
)
def test_solutions_come_back_bit_for_bit(tmp_path: Path, seed: int, count: int, kinds: dict[str, Any]) -> None:
    path = tmp_path / "solution"
    seen, seen_orders = set(), set()
    for solution in solutions(seed, count, **kinds):
        save(solution, path)
        found = load(path)
        assert isinstance(found, jm.results.Solution)
        seen.add((found.method, found.model.sharing, type(found.moments)))
        assert key(found) == key(solution)
        for name in ("mean", "covariance", "second_moment", "correlation"):
            assert bits(getattr(found, name)) == bits(getattr(solution, name))
        assert repr(found) == repr(solution)
        assert found.order == solution.order
        seen_orders.add(found.order)
        assert bits(found.moment(found.order - 1, 1)) == bits(solution.moment(solution.order - 1, 1))
        places = np.argwhere(solution.model.available)
        for s, a in places:
            for t, b in places:
                assert found.covariance_between(s, a, t, b) == solution.covariance_between(s, a, t, b)
                if s == t:
                    assert found.gap(s, a, b) == solution.gap(s, a, b)
        again = tmp_path / "again"
        save(found, again)
        assert again.read_bytes() == path.read_bytes()
    assert {sharing for _, sharing, _ in seen} == set(SHARINGS)
    assert {method for method, _, _ in seen} == {"Solve", "Iterate", "horizon"}
    assert seen_orders == {2, 3, 4}


def test_higher_moments_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    solution = jm.evaluate(small_model(), [[0.5, 0.5], [1.0, 0.0]], order=4)
    save(solution, tmp_path / "s")
    data = (tmp_path / "s").read_bytes()
    assert outcome(tmp_path / "s", data) == key(solution)
    for order in (2, 3, 5):
        assert outcome(tmp_path / "s", with_page(data, order=order)) is None
    assert outcome(tmp_path / "s", with_page(data, moments="pair")) is None


def test_unmet_tolerances_and_infinite_bounds_come_back(tmp_path: Path) -> None:
    solution = small_solution()
    object.__setattr__(solution.certificate, "residual", np.inf)
    object.__setattr__(solution, "status", jm.errors.Status.STAGNATED)
    save(solution, tmp_path / "s")
    assert key(load(tmp_path / "s")) == key(solution)


def test_numpy_opens_the_file_by_itself(saved: Path) -> None:
    with np.load(saved, allow_pickle=False) as archive:
        assert archive["rewards"].tobytes() == small_model().rewards.tobytes()
        assert archive["available"].dtype == bool
        page = json.loads(archive[archives.PAGE])
        assert set(archive.files) == {archives.PAGE, *page["arrays"]}
    assert page["format"] == "jointmdp"
    assert page["version"] == archives.FORMAT_VERSION
    assert page["library"] == jm.__version__
    with zipfile.ZipFile(saved) as zipped:
        assert zipped.testzip() is None


def test_equal_things_make_equal_files(saved: Path, tmp_path: Path) -> None:
    save(small_model(), tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == saved.read_bytes()


def test_large_arrays_go_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "CHUNK", 13)
    save(small_model(), tmp_path / "m")
    assert key(load(tmp_path / "m")) == key(small_model())


# -- flipped bits ----------------------------------------------------------------------------------------------


def flips(data: bytes, places: Iterator[tuple[int, int]]) -> Iterator[bytes]:
    for place, bit in places:
        yield data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


def test_a_flipped_bit_in_any_byte_is_noticed(saved: Path) -> None:
    data, rng = saved.read_bytes(), np.random.default_rng(1)
    for flipped in flips(data, ((i, int(rng.integers(8))) for i in range(len(data)))):
        assert outcome(saved, flipped) is None


@pytest.mark.slow
def test_flipped_bits_are_noticed_everywhere(tmp_path: Path) -> None:
    """Every other bit of every byte, in turn."""
    path = tmp_path / "m"
    save(small_model(), path)
    data = path.read_bytes()
    for flipped in flips(data, ((i, bit) for i in range(len(data)) for bit in range(i % 2, 8, 2))):
        assert outcome(path, flipped) is None


def check_forged_flips(path: Path, places: Callable[[int], Iterator[tuple[int, int]]]) -> None:
    """Flip, then renew the digest: CRCs and the comparison of headers are then what is left."""
    data = path.read_bytes()
    truth = key(load(path))
    refused = 0
    for flipped in flips(data, places(len(data) - archives.DIGITS)):
        found = outcome(path, sealed(flipped))
        assert found in (None, truth)
        refused += found is None
    assert refused > 0


@pytest.mark.slow
def test_a_forged_digest_hides_nothing(saved: Path) -> None:
    rng = np.random.default_rng(2)
    check_forged_flips(saved, lambda size: ((i, int(rng.integers(8))) for i in range(size)))


@pytest.mark.slow
def test_a_forged_digest_hides_no_bit(tmp_path: Path) -> None:
    """A bit of every byte, another one of the next, and another than by day."""
    path = tmp_path / "s"
    save(small_solution(), path)
    check_forged_flips(path, lambda size: ((i, (i + 3) % 8) for i in range(size)))


# -- mutated files ---------------------------------------------------------------------------------------------


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """One of many ways to spoil a file."""
    out = bytearray(data)
    i, j = sorted(int(k) for k in rng.integers(len(data) + 1, size=2))
    match int(rng.integers(8)):
        case 0:  # cut off
            return bytes(out[:i])
        case 1:  # a few bytes changed
            for k in rng.integers(len(data), size=int(rng.integers(1, 9))):
                out[k] = int(rng.integers(256))
        case 2:  # something inserted
            out[i:i] = rng.bytes(int(rng.integers(1, 200)))
        case 3:  # a part taken out
            del out[i:j]
        case 4:  # two chunks swapped
            n = int(rng.integers(1, 64))
            out[i : i + n], out[j : j + n] = out[j : j + n], out[i : i + n]
        case 5:  # garbage, with our marks or without
            head = data[: 30 + len(archives.PAGE)] if rng.integers(2) else b""
            tail = data[-archives.DIGITS - len(archives.SEAL) :] if rng.integers(2) else b""
            return head + rng.bytes(int(rng.integers(3000))) + tail
        case 6:  # a header inside a header, with huge sizes in it
            huge = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }\n"
            out[i : i + len(huge)] = huge
        case _:  # numbers in zip headers set to their largest
            n = int(rng.choice([2, 4, 8]))
            out[i : i + n] = b"\xff" * n
    return bytes(out)


def check_mutations(path: Path, count: int, seed: int) -> None:
    """Half of the files keep their old digest, half get a right one."""
    data, truth, rng = path.read_bytes(), key(load(path)), np.random.default_rng(seed)
    before = peak()
    for i in range(count):
        changed = mutated(data, rng)
        if i % 2:
            changed = sealed(changed)
        assert outcome(path, changed) in (None, truth)
    assert peak() - before < GROWTH


def test_mutated_files_are_refused(saved: Path) -> None:
    check_mutations(saved, 1000, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("make", slow_or_long([small_solution, small_model], 1))
def test_ten_thousand_mutated_files_are_refused(tmp_path: Path, make: Callable[[], jm.JointMDP]) -> None:
    save(make(), tmp_path / "m")
    check_mutations(tmp_path / "m", 10_000, seed=4)


@pytest.mark.parametrize(
    "changes",
    [
        {"discount": 1e999},
        {"discount": "0.9"},
        {"discount": True},
        {"discount": 10**400},
        {"discount": -0.5},
        {"sharing": "everyone"},
        {"sharing": ["state"]},
        {"state_names": ["one", "one"]},
        {"state_names": ["one"]},
        {"state_names": [1, 2]},
        {"state_names": [{"tuple": 1}, {"tuple": 2}]},
        {"state_names": [{"tuple": [[]]}, {"tuple": []}]},
        {"state_names": [{"tuple": [], "list": []}, "b"]},
        {"state_names": "ab"},
        {"action_names": {"a": 1}},
        {"kind": "policy"},
        {"kind": ["model"]},
        {"kind": "solution"},
        {"kind": ...},
        {"extra": 1},
        {"library": ...},
        {"format": "something else"},
        {"version": True},
        {"version": "4"},
        {"version": 1},
        {"version": ...},
        {"arrays": ...},
        {"arrays": []},
        {"arrays": 3},
        {"arrays": {}},
    ],
)
def test_a_page_that_makes_no_sense_is_refused(saved: Path, changes: dict[str, object]) -> None:
    assert outcome(saved, with_page(saved.read_bytes(), **changes)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"moments": "cubes"},
        {"moments": "state"},
        {"moments": ["pair"]},
        {"status": "FINE"},
        {"status": None},
        {"method": 3},
        {"order": 1},
        {"order": 3},
        {"order": "2"},
        {"order": ...},
        {"steps": -1},
        {"steps": "3"},
        {"steps": True},
        {"horizon": 0},
        {"horizon": 1e999},
        {"kind": "model"},
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    save(small_solution(), tmp_path / "s")
    assert outcome(tmp_path / "s", with_page((tmp_path / "s").read_bytes(), **changes)) is None


def npy(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array(made, array, version=(1, 0), allow_pickle=True)
    return made.getvalue()


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("<f8", [10**12, 10**6]),
        ("<f8", [2**63 - 1, 2**62]),
        ("<f8", [2**64, 2]),
        ("<f8", [10**15, 0]),
        ("<f8", [0, 10**15]),
        ("<f8", [-2, 2]),
        ("<f8", [2.0, 2]),
        ("<f8", [True, 4]),
        ("<f8", [4]),
        ("<f8", 4),
        ("<f8", [1] * 70),
        ("<f8", [[2], 2]),
        ("|O", [2, 2]),
        ("<i8", [2, 2]),
        (">f8", [2, 2]),
        ("<f4", [4, 2]),
        ("|b1", [4, 8]),
        (["<f8"], [2, 2]),
        (None, [2, 2]),
    ],
)
def test_claimed_shapes_are_not_believed(saved: Path, dtype: object, shape: object) -> None:
    """A forger's page and header agree with each other, but not with the bytes that are there."""
    data = saved.read_bytes()
    page = json.loads(members(data)[archives.PAGE])
    page["arrays"]["probabilities"] = {"dtype": dtype, "shape": shape}
    parts = members(data)
    body = parts["probabilities.npy"][-32:]
    header = archives.npy_header(str(dtype), tuple(shape) if isinstance(shape, list) else (4,))
    for content in (header + body, header, parts["probabilities.npy"]):
        fake = forged({**parts, archives.PAGE: json.dumps(page).encode(), "probabilities.npy": content})
        tracemalloc.start()
        try:
            assert outcome(saved, fake) is None
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()


def test_forged_members_are_refused(saved: Path) -> None:
    data = saved.read_bytes()
    parts = members(data)
    page = parts[archives.PAGE]
    reordered = dict(reversed(parts.items()))
    fortran = parts["rewards.npy"].replace(b"'fortran_order': False", b"'fortran_order': True ")
    wrong = [
        forged(reordered),
        forged({**parts, "extra.npy": npy(np.zeros(3))}),
        forged({name: part for name, part in parts.items() if name != "rewards.npy"}),
        forged({**parts, "rewards.npy": fortran}),
        forged({**parts, "rewards.npy": npy(np.array([[[None]]], dtype=object))}),
        forged({**parts, "rewards.npy": parts["rewards.npy"][:-8]}),
        forged({**parts, "rewards.npy": parts["rewards.npy"] + bytes(8)}),
        forged({**parts, "available.npy": parts["available.npy"][:-4] + bytes([1, 2, 1, 0])}),
        forged({**parts, "probabilities.npy": parts["probabilities.npy"][:-8] + np.float64(0.5).tobytes()}),
        forged({**parts, archives.PAGE: page.replace(b"0.9", b"NaN")}),
        forged({**parts, archives.PAGE: page.replace(b"0.9", b"9" * 5000)}),
        forged({**parts, archives.PAGE: page[:-3]}),
        forged({**parts, archives.PAGE: page.decode().encode("utf-16")}),
        forged({**parts, archives.PAGE: b'{"format": "jointmdp", ' + page.lstrip()[1:]}),
        forged({**parts, archives.PAGE: b"[" * 100_000}),
        forged({**parts, archives.PAGE: b"[]"}),
        forged({**parts, archives.PAGE: b""}),
        forged({}),
        sealed(archives.SEAL + b"0" * archives.DIGITS),
    ]
    assert [outcome(saved, fake) for fake in wrong] == [None] * len(wrong)
    assert outcome(saved, forged(parts)) == key(small_model())  # the forger's tools themselves work


def test_forged_answers_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    save(small_solution(), path)
    data = path.read_bytes()
    for name in json.loads(members(data)[archives.PAGE])["arrays"]:
        parts = members(data)
        page = json.loads(parts[archives.PAGE])
        form = page["arrays"][name]
        longer = np.zeros([*form["shape"], 1] if name == "history" else [n + 1 for n in form["shape"]], form["dtype"])
        form["shape"] = list(longer.shape)
        content = archives.npy_header(longer.dtype.str, longer.shape) + longer.tobytes()
        assert (
            outcome(path, forged({**parts, archives.PAGE: json.dumps(page).encode(), f"{name}.npy": content})) is None
        )


@pytest.mark.parametrize("depth", [50, 300, 900, 960, 980, 990, 1000, 3000, 10**5])
@pytest.mark.parametrize("place", ["format", "version", "kind", "sharing", "arrays", "discount", "state_names"])
def test_pages_nested_deeply_are_refused(saved: Path, place: str, depth: int) -> None:
    parts = members(saved.read_bytes())
    page = json.loads(parts[archives.PAGE])
    page[place] = "nest"
    text = json.dumps(page).replace('"nest"', "[" * depth + "]" * depth)
    assert outcome(saved, forged({**parts, archives.PAGE: text.encode()})) is None


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_members_are_refused(saved: Path, compression: int) -> None:
    parts = members(saved.read_bytes())
    parts["rewards.npy"] += bytes(2**24)  # what a bomb would unpack to
    saved.write_bytes(forged(parts, compression))
    with pytest.raises(jm.ModelError, match="compressed"):
        load(saved)


# -- what the errors say ---------------------------------------------------------------------------------------


def test_errors_name_the_file_and_what_is_wrong(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    np.savez(tmp_path / "plain.npz", x=np.zeros(3))
    contents = {
        b"": "empty",
        b"hello": "not a jointmdp file",
        (tmp_path / "plain.npz").read_bytes(): "not a jointmdp file",
        data[:-1]: "truncated",
        data[:100]: "truncated",
        data + b"\n": "truncated, or something was written behind",
        data.replace(b"0.9", b"0.8"): "damaged.*checksum",
        with_page(data, version=5): "version 5.*newer",
        with_page(data, sharing="all"): "sharing is 'all'",
        with_page(data, discount=2.0): "discount is 2",
    }
    for content, words in contents.items():
        saved.write_bytes(content)
        with pytest.raises(jm.ModelError, match=words) as caught:
            load(saved)
        assert str(saved) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_places_that_hold_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    wrong = {
        tmp_path / "missing": "no such file",
        tmp_path: "it is a directory",
        tmp_path / "pipe": "not a regular file",
        tmp_path / "loop": "symbolic links",
        "\0": "null",
        3: "must be a string or a path",
        None: "must be a string or a path",
    }
    for path, words in wrong.items():
        with pytest.raises(jm.ModelError, match=words):
            load(path)  # type: ignore[arg-type]
    del wrong[tmp_path / "missing"]
    wrong[tmp_path / "missing" / "m"] = "directory does not exist"
    for path, words in wrong.items():
        with pytest.raises(jm.ModelError, match=words):
            save(small_model(), path)  # type: ignore[arg-type]
    assert sorted(os.listdir(tmp_path)) == ["loop", "pipe"]


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path) -> None:
    """A spreadsheet runs what begins with one of these; numbers stay numbers, and our own reader takes it back."""
    path = tmp_path / "cells.csv"
    risky = ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\tx", "\rx", "\nx", "'=1", "-", "="]
    plain = ["-1.5", "+2", "-1e-3", "-inf", "a=b", "it's", "'quoted'", "", "(-1, 0)"]
    rows = [{"name": text, "=value": -2.5, "size": -3, "none": None} for text in (*risky, *plain)]
    files.write_csv(path, rows)
    with path.open(newline="", encoding="utf-8") as file:
        header, *found = csv.reader(file)
    assert header == ["name", "'=value", "size", "none"]
    assert [row[0] for row in found] == [f"'{text}" for text in risky] + plain
    assert {tuple(row[1:]) for row in found} == {("-2.5", "-3", "")}
    assert [files.spelled_out(row[0]) for row in found] == [*risky, *plain]


def test_a_log_with_the_names_of_a_csv_file_of_ours_is_read(tmp_path: Path) -> None:
    tables = {"probabilities": [[1.0]] * 2, "rewards": [[[0.0, 1.0]]] * 2, "successors": [[[1, 0]]] * 2}
    model = jm.JointMDP(**tables, discount=0.5, state_names=["=low", "-high"], action_names=["@a", "'+b"])
    path = tmp_path / "log.csv"
    files.write_csv(path, [{"state": "=low", "action": "@a"}, {"state": "-high", "action": "'+b"}])
    (found,) = jm.Trajectory.read(path, model)
    assert (found.states, found.actions) == (["=low", "-high"], ["@a", "'+b"])


def test_a_file_that_the_writer_misses_is_named(tmp_path: Path) -> None:
    """A font that is not there, say: the directory of the file that is written exists."""
    with pytest.raises(jm.ModelError, match=r"cannot write '.*picture': .*No such file or directory: 'missing font'"):
        write_file(tmp_path / "picture", lambda file: Path("missing font").read_bytes())
    assert os.listdir(tmp_path) == []


def test_only_models_and_solutions_are_saved(tmp_path: Path) -> None:
    with pytest.raises(jm.ModelError, match="not dict"):
        save({}, tmp_path / "m")  # type: ignore[arg-type]
    strange = small_solution()
    object.__setattr__(strange, "moments", object())
    with pytest.raises(jm.ModelError, match="moments as object"):
        save(strange, tmp_path / "m")
    assert os.listdir(tmp_path) == []


@contextlib.contextmanager
def guarded(mode: int) -> Iterator[Path]:
    """A file with these permissions in a read-only directory; root steps down to nobody, whom they bind too."""
    is_root = os.geteuid() == 0
    codecs.lookup(
        "cp437"
    )  # of zip files: nobody may not be allowed to read Python's own, and it is looked for once only
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m"
        save(small_model(), path)
        path.chmod(mode)
        Path(folder).chmod(0o555)
        if is_root:
            os.seteuid(65534)
        try:
            yield path
        finally:
            if is_root:
                os.seteuid(0)
            Path(folder).chmod(0o755)


def test_an_unreadable_file() -> None:
    with guarded(0) as path, pytest.raises(jm.ModelError, match="Permission denied"):
        load(path)


# -- writing ---------------------------------------------------------------------------------------------------


def other_model() -> jm.JointMDP:
    return small_model().with_discount(0.5)


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("raised", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch, call: str, raised: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(os, call, fail)
    with pytest.raises((jm.ModelError, KeyboardInterrupt), match="No space left" if raised.args else None):
        save(other_model(), saved)
    monkeypatch.undo()
    assert key(load(saved)) == key(small_model())
    assert os.listdir(saved.parent) == [saved.name]


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Inside, no file can grow beyond `size`: the system itself refuses the write, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_writes_that_the_system_refuses_leave_the_old_file(saved: Path) -> None:
    size = saved.stat().st_size
    big = jm.JointMDP(np.ones((300, 1)), np.zeros((300, 1, 30)), np.zeros((300, 1, 30)), 0.5)
    for limit in (*range(0, size, 97), size - 1):
        with file_size_limit(limit), pytest.raises(jm.ModelError, match="cannot write"):
            save(other_model(), saved)
        with file_size_limit(50 * limit), pytest.raises(jm.ModelError, match="File too large"):
            save(big, saved)
        assert os.listdir(saved.parent) == [saved.name]
    assert key(load(saved)) == key(small_model())
    with file_size_limit(size):
        save(other_model(), saved)
    assert key(load(saved)) == key(other_model())


def test_a_picture_that_the_system_refuses_leaves_the_old_file(tmp_path: Path) -> None:
    """Where the picture is ours to write; `savefig` of a figure is matplotlib's, and raises what it does."""
    path, fig = tmp_path / "picture.png", style.figure(width=2, height=2)[0]
    old = jm.plots.save(fig, path).read_bytes()
    for limit in range(0, len(old), len(old) // 3):
        with file_size_limit(limit), pytest.raises(jm.ModelError, match=r"cannot write .*picture\.png'"):
            jm.plots.save(fig, path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["picture.png"]
    with pytest.raises(jm.ModelError, match="cannot be a folder: Not a directory"):
        jm.plots.save(fig, path / "inside" / "picture.png")


def test_a_read_only_directory() -> None:
    with guarded(0o666) as path:
        for target in (path, path.with_name("new")):
            with pytest.raises(jm.ModelError, match="Permission denied"):
                save(other_model(), target)
        assert os.listdir(path.parent) == [path.name]
        assert key(load(path)) == key(small_model())


def test_a_write_protected_file_stays() -> None:
    with guarded(0o444) as path:
        with pytest.raises(jm.ModelError, match="write-protected"):
            save(other_model(), path)
        assert key(load(path)) == key(small_model())


def test_permissions_follow_the_umask_and_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m"
    old = os.umask(0o027)
    try:
        save(small_model(), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o606)
        save(other_model(), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o606
    finally:
        os.umask(old)


def test_a_link_stays_a_link(saved: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(saved)
    save(other_model(), link)
    assert link.is_symlink()
    assert key(load(saved)) == key(other_model())


KILLS = """
    import os, random, sys, time
    import numpy as np
    from jointmdp.show.saving import load, save
    from jointmdp.model.joint_mdp import JointMDP

    path, count = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(6)
    models = [
        JointMDP(np.ones((60, 1)), rng.normal(size=(60, 1, 60)), rng.integers(60, size=(60, 1, 60)), 0.9)
        for _ in range(2)
    ]
    save(models[0], path)
    torn = replaced = 0
    for i in range(count):
        before = os.stat(path).st_ino
        child = os.fork()
        if child == 0:
            while True:
                for model in models:
                    save(model, path)
        time.sleep(random.Random(i).uniform(0, 0.02))
        os.kill(child, 9)
        os.waitpid(child, 0)
        assert load(path) in models
        replaced += os.stat(path).st_ino != before
        left = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".tmp")]
        for name in left:
            os.unlink(os.path.join(os.path.dirname(path), name))
        torn += bool(left)
    assert "jax" not in sys.modules
    print(torn, replaced)
"""


def kill_savers(path: Path, count: int) -> tuple[int, int]:
    """Kill savers at random moments; how many were in the middle of a file, and how many had replaced one."""
    command = [sys.executable, "-c", textwrap.dedent(KILLS), str(path), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    torn, replaced = map(int, done.stdout.split())
    return torn, replaced


def test_a_killed_save_leaves_a_whole_file(tmp_path: Path) -> None:
    torn, _ = kill_savers(tmp_path / "m", 10)
    assert torn > 0


@pytest.mark.slow
def test_a_hundred_killed_saves_leave_whole_files(tmp_path: Path) -> None:
    torn, replaced = kill_savers(tmp_path / "m", 100)
    assert torn > 10
    assert replaced > 10
