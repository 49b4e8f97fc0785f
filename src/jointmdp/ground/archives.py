"""Sealed archives: named arrays and a page of JSON in one file that is either whole or refused.

The file is a plain zip of ``.npy`` members, so ``numpy.load`` opens it where this library is not installed:

    jointmdp.json        strict JSON in UTF-8: what the file holds, and the dtype and shape of every array
    NAME.npy, …          one for each array, in the order of the JSON: stored uncompressed, little-endian, C order
    central directory
    comment              ``jointmdp sha256 `` and 64 hexadecimal digits, the last bytes of the file

The digits are the SHA-256 of every byte in front of them, headers and directory included. They are checked before
anything is parsed. A file with the right digest is not trusted either, since an editor can renew it: sizes are compared
with what the file really holds before memory is asked for, and nothing is ever unpickled.

A checkpoint of a run is such a file with a log, and with what the run was asked to do: no other run goes on from it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, __version__, cause, check_regular, path_name, write_file

PAGE = "jointmdp.json"
SEAL = b"jointmdp sha256 "
DIGITS = 64
FORMAT_VERSION = 4  # which arrays a file holds; files of another version are refused by that name
HEAD = {"format": "jointmdp", "version": FORMAT_VERSION, "library": __version__}  # of every page
START = b"PK\x03\x04"  # a zip's first member; its name begins at byte 30
DTYPES = ("<f8", "<i8", "|b1", "<f4", "<i4", "<i2", "|u1")
CHUNK = 2**22  # bytes moved at a time


def write(path: FilePath, page: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write `page` and `arrays` to `path`, which holds its old content or the new one at every moment."""
    described = {name: {"dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()}
    try:
        text = json.dumps({**page, "arrays": described}, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ModelError(f"a name holds {half!r}, half of a character; it cannot be saved") from None
    write_file(path, lambda file: _fill(file, text, arrays))


def _fill(file: IO[bytes], text: bytes, arrays: Mapping[str, NDArray[Any]]) -> None:
    # No member carries a date, so that equal things make equal files.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = SEAL + b"0" * DIGITS
        with archive.open(zipfile.ZipInfo(PAGE), "w", force_zip64=True) as member:
            member.write(text)
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), (1, 0), allow_pickle=False)
    end = file.seek(-DIGITS, os.SEEK_END)
    digits = _digest(file, end)
    file.seek(end)
    file.write(digits)


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The head of an ``.npy`` file."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
    return head.getvalue()


def _digest(file: IO[bytes], length: int) -> bytes:
    """The digits that seal the first `length` bytes."""
    digest = hashlib.sha256()
    file.seek(0)
    while length > 0:
        piece = file.read(min(length, CHUNK))
        if not piece:
            raise EOFError("the file shrinks while it is read")
        digest.update(piece)
        length -= len(piece)
    return digest.hexdigest().encode()


def read(path: FilePath) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The page and the arrays of a sealed archive; booleans come as bytes, for the caller to check."""
    source = path_name(path)
    try:
        check_regular(source)
        with open(source, "rb") as file:
            size = _check_seal(file)
            with zipfile.ZipFile(file) as archive:
                return _parse(archive, size)
    except ModelError as error:
        raise ModelError(f"cannot load {source!r}: {error}") from None
    except FileNotFoundError:
        raise ModelError(f"cannot load {source!r}: there is no such file") from None
    except MemoryError:
        raise ModelError(f"cannot load {source!r}: it does not fit in memory") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise ModelError(f"cannot load {source!r}: {cause(error)}") from error
        # A forged archive trips the zip and JSON readers in more ways than they promise, EINVAL for a seek to a
        # place before the file's beginning among them.
        raise ModelError(f"cannot load {source!r}: it is damaged ({cause(error)})") from error


def _check_seal(file: IO[bytes]) -> int:
    """The size of the file, once its digest is found right."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(30 + len(PAGE))
    file.seek(max(0, size - len(SEAL) - DIGITS))
    tail = file.read()
    starts_well = head.startswith(START) and head.endswith(PAGE.encode())
    if not tail.startswith(SEAL):
        if starts_well:
            raise ModelError("it is truncated, or something was written behind its end")
        raise ModelError("it is not a jointmdp file" if size else "it is empty")
    if tail[len(SEAL) :] != _digest(file, size - DIGITS):
        raise ModelError("it is damaged: the checksum does not match")
    return size


def _parse(archive: zipfile.ZipFile, size: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    members = archive.infolist()
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ModelError(f"its member {member.filename!r} is compressed, and members must be stored as they are")
    if sum(member.file_size for member in members) > size:
        raise ModelError("it is damaged: its members claim more bytes than the file has")
    if not members or members[0].filename != PAGE:
        raise ModelError(f"it is not a jointmdp file: it does not begin with {PAGE}")
    page = json.loads(archive.read(members[0]).decode(), object_pairs_hook=_no_twins, parse_constant=_no_constants)
    if not isinstance(page, dict) or page.get("format") != "jointmdp":
        raise ModelError(f"it is not a jointmdp file: {PAGE} does not say so")
    if page.get("version") != FORMAT_VERSION or isinstance(page["version"], bool):
        raise ModelError(
            f"its format is version {page.get('version')!r} and this library reads version {FORMAT_VERSION}; "
            "an older or newer jointmdp may have written it"
        )
    described = page.pop("arrays")
    if [member.filename for member in members[1:]] != [f"{name}.npy" for name in described]:
        raise ModelError(f"it is damaged: {PAGE} lists other arrays than the file holds")
    forms = zip(members[1:], described.items(), strict=True)
    return page, {name: _read_array(archive, member, form) for member, (name, form) in forms}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, form: dict[str, Any]) -> NDArray[Any]:
    dtype, shape = form["dtype"], form["shape"]
    wrong = ModelError(f"it is damaged: {member.filename} is not the array that {PAGE} describes")
    if dtype not in DTYPES or len(shape) > 8 or any(type(n) is not int or not 0 <= n < 2**63 for n in shape):
        raise wrong
    header = npy_header(dtype, tuple(shape))
    if member.file_size != len(header) + math.prod(shape) * np.dtype(dtype).itemsize:
        raise wrong
    with archive.open(member) as source:
        if source.read(len(header)) != header:
            raise wrong
        array = np.empty(shape, np.uint8 if dtype == "|b1" else dtype)
        flat = array.reshape(-1).view(np.uint8)
        for i in range(0, flat.size, CHUNK):
            flat[i : i + CHUNK].data[:] = source.read(min(CHUNK, flat.size - i))
        source.read(1)  # an empty array is compared with its checksum here, any other with its last byte
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ModelError(f"it is damaged: {PAGE} holds a key twice")
    return found


def _no_constants(word: str) -> None:
    raise ModelError(f"it is damaged: {PAGE} holds {word}, which is not JSON")


DIGESTS = {"digest": "model, simulator or policy", "recorded": "recorded queries"}  # whose values say nothing
KEYS = {"format", "version", "library", "kind", "run", "log"}


def write_checkpoint(
    path: FilePath, kind: str, run: Mapping[str, Any], log: Sequence[Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write a checkpoint, whole or not at all."""
    page = {**HEAD, "kind": kind, "run": dict(run), "log": list(log)}
    write(path, page, arrays)


def read_checkpoint(path: FilePath, kind: str, run: Mapping[str, Any]) -> tuple[list[Any], dict[str, NDArray[Any]]]:
    """The log and the arrays of the checkpoint of a run."""
    page, arrays = read(path)
    check_page(path, page, kind, run)
    return page["log"], arrays


def check_page(path: FilePath, page: Mapping[str, Any], kind: str, run: Mapping[str, Any]) -> None:
    """Refuse the page of something else than a checkpoint of this kind and this run."""
    name = path_name(path)
    if page.get("kind") != kind or page.keys() != KEYS or not isinstance(page["log"], list):
        raise ModelError(f"{name!r} is not a checkpoint of {kind}; give another path")
    check_run(name, page["run"], run)


def check_run(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse to go on with what another run has left."""
    other = [key for key in ours if theirs.get(key) != ours[key]]
    if not other and theirs.keys() == ours.keys():
        return
    key = other[0] if other else "settings"
    known = "" if key in DIGESTS else f" ({theirs.get(key)!r} there, {ours.get(key)!r} here)"
    raise ModelError(
        f"the checkpoint {name!r} belongs to another run: not the same {DIGESTS.get(key, key)}{known}; delete it to "
        "start from the beginning, or give another path"
    )


def check_arrays(path: FilePath, arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> None:
    """Refuse a checkpoint that holds other arrays."""
    if list(arrays) != list(names):
        raise ModelError(f"cannot load {path_name(path)!r}: it is damaged: it holds other arrays than a checkpoint")


def fitted(path: FilePath, part: str, array: NDArray[Any], leaf: Any, *, may_grow: bool = False) -> NDArray[Any]:
    """An array of a checkpoint as that of a run, whose shape and kind it must have."""
    fits = array.ndim == leaf.ndim if may_grow else array.shape == leaf.shape
    if not fits or array.dtype.kind != np.dtype(leaf.dtype).kind:
        raise ModelError(f"cannot load {path_name(path)!r}: it is damaged: {part} does not fit")
    return array.astype(leaf.dtype)
