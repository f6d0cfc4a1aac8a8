"""Small array helpers that NumPy lacks or does slowly."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.library import int64, integers, run
from boundby.model.scale import DENSE, PLENTY, ROOM

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
ByteArray = npt.NDArray[np.uint8]
BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.float64]

#: Stands in a column of int64 for what is not told: NULL, an absent column or argument.
MISSING = int(np.iinfo(np.int64).min)

Scalar = TypeVar("Scalar", bound=np.generic)


_EVEN: WeakValueDictionary[tuple[int, str, Any], npt.NDArray[Any]] = WeakValueDictionary()  # none can be written


def compact(column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """The column; of one value throughout, one that all such columns of this length share."""
    return _shared(column) if is_even(column) else column


def _shared(column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    value = column[0].item()
    even = _EVEN.get((len(column), column.dtype.str, value))
    if even is None:
        even = np.full(len(column), value, column.dtype) if value else _unwritten(column)
        even.flags.writeable = False
        _EVEN[len(column), column.dtype.str, value] = even
    return even


def scattered(count: int, rows: npt.NDArray[np.intp], values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """A column of zeros but for these values in these rows; the shared one where there are none."""
    if count and not values.any():
        return compact(spread(0, count, values.dtype.type))
    column = np.zeros(count, values.dtype)
    column[rows] = values
    return column


def is_even(column: npt.NDArray[Any]) -> bool:
    """Whether it holds one value throughout; not if it holds none."""
    if not len(column) or column[0] != column[-1]:
        return False
    first = column[:_SAMPLED]  # what is not even mostly shows there
    return _is_told_even(column) or not ((first != column[0]).any() or (column != column[0]).any())


def _is_told_even(column: npt.NDArray[Any]) -> bool:
    """Whether that is known without a look: of what `spread` and `compact` made, and of parts of it."""
    if column.flags.writeable:  # these cannot be written to
        return False
    if column.strides == (0,):
        return True
    for array in (column, column.base):
        if isinstance(array, np.ndarray) and array.ndim == 1 and len(array) and array.dtype == column.dtype:
            even = _EVEN.get((len(array), array.dtype.str, array[0].item()))
            if array is even:
                return True
    return False


def spread(value: float, rows: int, kind: type[Scalar] | type[np.int64] = np.int64) -> npt.NDArray[Any]:
    """A column of one value, which takes no memory: it is not contiguous, and cannot be written to."""
    return np.broadcast_to(kind(value), rows)


def thin(column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """The column; of one value throughout, as `spread` has it."""
    return spread(column[0].item(), len(column), column.dtype.type) if is_even(column) else column


def taken(column: npt.NDArray[Scalar], rows: npt.NDArray[np.integer] | slice) -> npt.NDArray[Scalar]:
    """``column[rows]``; what is known to hold one value throughout is not copied."""
    if isinstance(rows, slice) or not len(rows) or not _is_told_even(column):
        return column[rows]
    even = spread(column[0].item(), len(rows), column.dtype.type)
    return even if column.strides == (0,) else _shared(even)


def bounds(column: npt.NDArray[Any]) -> tuple[int, int]:
    """The least and the greatest of some integers."""
    values = column[:1] if _is_told_even(column) else column
    return int(values.min()), int(values.max())


def least_two(values: Int64Array) -> list[int]:
    """The two least values, or as many as there are; no copy of the column is made."""
    if len(values) < 2:
        return [int(value) for value in values]
    least = int(values.argmin())
    others = [part.min() for part in (values[:least], values[least + 1 :]) if len(part)]
    return [int(values[least]), int(min(others))]


def replaced(column: Int64Array, number: int, by: int) -> Int64Array:
    """The column with another number in place of one; itself where it does not hold that."""
    if is_even(column):
        return spread(by, len(column)) if column[0] == number else column
    is_number = column == number
    return np.where(is_number, by, column).astype(np.int64, copy=False) if is_number.any() else column


def _unwritten(column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """As many zeros: where the system has pages for what nobody has written to, they take no memory."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros_like(column)
    pages = mmap.mmap(-1, column.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # large ones are found by fewer faults
        with contextlib.suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, column.dtype)


def narrow(column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Integers in 32 bits where all of them fit (two of them can be added; who multiplies widens them first), and as
    `compact` has them."""
    low, high = bounds(column) if len(column) else (0, 0)
    if low < -_WIDEST or high > _WIDEST:
        return column
    fitted: npt.NDArray[Any] = (
        spread(low, len(column), np.int32) if low == high else column.astype(np.int32, copy=False)
    )
    return compact(fitted)


_WIDEST = np.iinfo(np.int32).max // 2


def index_type(most: int) -> type[np.signedinteger[Any]]:
    """The narrowest type for places up to this one, and for -1. Who adds or multiplies widens them first."""
    return np.int8 if most < 1 << 7 else np.int16 if most < 1 << 15 else np.int32


def shared(column: npt.NDArray[Scalar], *others: npt.NDArray[Any]) -> npt.NDArray[Scalar]:
    """The column, or one of the others that is the same in every row: none of them may be written to."""
    if any(other is column for other in others):
        return column
    return next((other for other in others if other.dtype == column.dtype and np.array_equal(other, column)), column)


def joined(parts: Sequence[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """``np.concatenate``; where all but one are empty, that one itself."""
    full = [part for part in parts if len(part)]
    return full[0] if len(full) == 1 else np.concatenate(parts)


def merged(*columns: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """All their values, ascending. Times nearly always ascend already, or in runs (all starts, then all ends): to merge
    these takes a twentieth of the time in which a million is sorted otherwise."""
    return np.sort(columns[0] if len(columns) == 1 else np.concatenate(columns), kind="stable")


def sorted_distinct(*arrays: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """All distinct values, ascending. By sorting: several times faster than np.unique's hash on timestamps."""
    values = merged(*arrays).astype(np.int64, copy=False)
    if len(values) == 0:
        return values
    new = np.empty(len(values), bool)
    new[0] = True
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]


def unique(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """The distinct values, ascending: ``np.unique``, which sorts; few different integers, as ids are, need not be."""
    flat = values.reshape(-1)
    if len(flat) == 0:
        return flat
    if _is_told_even(flat):
        flat = flat[:1]
    if (few := _few(flat)) is not None:
        low, seen = few
        return (np.flatnonzero(seen) + low).astype(flat.dtype)
    # Sorting is quicker than the table of hashes that NumPy makes, before which it loads masked arrays.
    ascending = flat if flat.dtype.kind == "i" and order_of(flat) else np.sort(flat)
    distinct: npt.NDArray[Scalar] = ascending[np.append(True, ascending[1:] != ascending[:-1])]
    return distinct


def without(values: npt.NDArray[Scalar], gone: npt.NDArray[Any]) -> npt.NDArray[Scalar]:
    """The distinct integers, ascending, that are not among the others: ``np.setdiff1d``, without masked arrays."""
    kept, gone = unique(values), np.append(unique(gone).astype(np.int64), np.iinfo(np.int64).max)
    left: npt.NDArray[Scalar] = kept[gone[places(gone, kept)] != kept]
    return left


# Of so many numbers or more a sample of as many is looked at first; the median lies so near to its middle.
_SAMPLED, _ASIDE = 1 << 12, 1 << 7


def median(values: npt.ArrayLike) -> float:
    """Of numbers in one row, none of them NaN: what ``np.median`` says, without the masked arrays that it loads."""
    numbers = np.asarray(values)
    half, is_odd = len(numbers) // 2, len(numbers) % 2
    if len(numbers) > _SAMPLED and numbers.dtype.kind == "i":
        low, high = bounds(numbers)
        if high - low < ROOM:  # so few different ones are counted
            upto = np.cumsum(np.bincount(numbers.astype(np.int64, copy=False) - low))
            middle = low + np.searchsorted(upto, (half - 1 + is_odd, half), side="right")
            return (float(middle[0]) + float(middle[1])) / 2
    if len(numbers) > _SAMPLED:  # few lie where the middle ones of a sample do: look among these
        sample = np.sort(numbers[:: len(numbers) // _SAMPLED])
        low, high = sample[len(sample) // 2 - _ASIDE], sample[len(sample) // 2 + _ASIDE]
        below, near = int(np.count_nonzero(numbers < low)), np.flatnonzero((numbers >= low) & (numbers <= high))
        if below < half < below + len(near):
            numbers, half = numbers[near], half - below
    parted = np.partition(numbers, half)
    if is_odd:
        return float(parted[half])
    return (float(parted[:half].max()) + float(parted[half])) / 2  # sooner found than both by their places


def quantile(values: Int64Array | FloatArray, part: float, *, ascend: bool = False) -> float:
    """Interpolated between neighbours: what ``np.quantile`` says, again without masked arrays. ``ascend``: the values
    do so."""
    position = part * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    parted = values if ascend else np.partition(values, high)
    first, second = parted[: low + 1].max().item(), parted[high].item()
    apart, beyond = second - first, position - low
    return float(second - apart * (1 - beyond) if beyond >= 0.5 else first + apart * beyond)


def ranked(values: npt.NDArray[Scalar]) -> tuple[npt.NDArray[Scalar], npt.NDArray[np.intp]]:
    """The distinct values, ascending, and the place of each value among them."""
    flat = values.reshape(-1)
    if is_even(flat):
        return flat[:1].copy(), _shared(spread(0, len(flat), np.intp))
    if (few := _few(flat)) is not None:
        low, seen = few
        values_seen = (np.flatnonzero(seen) + low).astype(flat.dtype)
        shifted = (flat if flat.itemsize >= 4 else flat.astype(np.int64)) - low if low else flat
        return values_seen, pick(np.cumsum(seen) - 1, shifted, 0)
    if (rows_known := _distinct([flat])) is not None:
        first, index = rows_known
        order = np.argsort(flat[first], kind="stable")
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        return flat[first[order]], pick(position, index, 0)
    order = np.argsort(flat, kind="stable")
    ascending, position = flat[order], np.empty(len(order), np.intp)
    new = np.append(True, ascending[1:] != ascending[:-1])[: len(order)]
    position[order] = np.cumsum(new) - 1
    return ascending[new], position


def first_rows(values: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """The first row of each distinct integer, in ascending order of these."""
    distinct_values, looked = unique(values), 1 << 12
    while True:  # most stand among the first rows
        some = values[:looked]
        distinct, index = ranked(some)
        if len(distinct) == len(distinct_values):
            first = np.empty(len(distinct_values), np.intp)
            first[index[::-1]] = np.arange(len(some))[::-1]  # the last write wins
            return first
        looked *= 16


def translated(values: npt.NDArray[Any], number_of: Callable[[int], int], kind: type[Scalar]) -> npt.NDArray[Scalar]:
    """What each integer stands for, asked once of each distinct one, in ascending order."""
    if is_even(values):
        return _shared(spread(number_of(int(values[0])), len(values), kind))
    if (few := _few(values)) is None:
        distinct, index = ranked(values)
        return pick(np.array([number_of(value) for value in distinct.tolist()], kind), index, 0)
    low, seen = few
    table = np.zeros(low + len(seen) if 0 < low <= len(seen) else len(seen), kind)
    first = len(table) - len(seen)  # places below the lowest of few spare taking it from each
    distinct = np.flatnonzero(seen)
    table[first + distinct] = [number_of(value) for value in (distinct + low).tolist()]
    return pick(table, values if first == low else values.astype(np.int64) - low, 0)


def grouped(values: npt.NDArray[Scalar]) -> tuple[npt.NDArray[Scalar], list[npt.NDArray[np.intp]]]:
    """The distinct values, ascending, and of each the places where it stands, in order."""
    distinct, index = ranked(values)
    if len(distinct) == 0:
        return distinct, []
    count = np.bincount(index)
    return distinct, np.split(into_groups(index, np.arange(len(index)), count), np.cumsum(count)[:-1])


def _few(flat: npt.NDArray[Scalar]) -> tuple[int, BoolArray] | None:
    """The lowest of integers, and which there are from it on; None where they lie too far apart for such a table."""
    if flat.dtype.kind != "i" or len(flat) == 0:
        return None
    low, high = bounds(flat)
    span = high - low + 1
    if span > 2 * len(flat) + 1:
        return None
    seen = np.zeros(span, bool)
    run("boundby_seen", np.ascontiguousarray(flat), flat.itemsize, len(flat), low, span, seen)
    return low, seen


# Of so many rows so many different ones are looked for in one pass, first in a table that stays in a core's cache.
_SLOTS = (1 << 12, 1 << 18)


def _distinct(columns: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]] | None:
    """The first row of each distinct one, and which of these each row is like; None: better found by sorting."""
    size = len(columns[0])
    if size < PLENTY or any(column.dtype.kind not in "ib" for column in columns):
        return None
    whole = [integers(column) for column in columns]
    addresses, widths = np.array([(column.ctypes.data, column.itemsize) for column in whole], np.int64).T.copy()
    number = np.empty(size, np.int64)
    for slots in _SLOTS:
        first, hashes = np.empty((2, slots // 2 + 1), np.int64)
        table = np.zeros(slots, np.int32), slots
        count = run("boundby_distinct", addresses, widths, len(whole), size, *table, first, hashes, number)
        if count >= 0:
            return first[:count].copy(), number
        if slots * DENSE > size:
            break
    return None


def factorize(*columns: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp]]:
    """Distinct rows of equally long columns, shape (k, columns) in ascending order, and each row's index in them."""
    size = len(columns[0])
    if size == 0:
        return np.empty((0, len(columns)), np.int64), np.zeros(0, np.int64)
    if len(columns) == 1:
        distinct_rows, index = ranked(columns[0])
        return distinct_rows.astype(np.int64)[:, None], index
    various = [not is_even(column) for column in columns]
    if not all(various):  # these tell no rows apart
        some = [column for column, is_various in zip(columns, various, strict=True) if is_various] or columns[:1]
        distinct_rows, index = factorize(*some)
        rows = np.repeat([[int(column[0]) for column in columns]], len(distinct_rows), axis=0)
        rows[:, various] = distinct_rows[:, : sum(various)]
        return rows, index
    if (packed := _packed(columns)) is not None:
        rest, inverse = ranked(packed[0])
        rows = np.empty((len(rest), len(columns)), np.int64)
        for at, (low, span) in reversed([*enumerate(packed[1])]):
            rows[:, at] = rest % span + low
            rest = rest // span
        return rows, inverse
    if (rows_known := _distinct(columns)) is not None:
        first, index = rows_known
        rows = np.stack([np.asarray(column)[first] for column in columns], axis=1).astype(np.int64)
        order = np.lexsort(rows.T[::-1])
        position = np.empty(len(order), np.intp)
        position[order] = np.arange(len(order))
        return rows[order], pick(position, index, 0)
    code = np.zeros(size, np.int64)
    for column in columns:
        distinct_rows, index = ranked(column)
        code = code * len(distinct_rows) + index
    distinct_rows, inverse = ranked(code)
    position = np.empty(len(distinct_rows), np.intp)
    position[inverse] = np.arange(size)
    rows = np.stack([np.asarray(column)[position] for column in columns], axis=1)
    return rows.astype(np.int64), inverse


def _packed(columns: Sequence[npt.NDArray[Any]]) -> tuple[Int64Array, list[tuple[int, int]]] | None:
    """One number for each row, in the order of the rows, where the columns hold integers that lie near to each other;
    and of each column the lowest value and how many there may be. None: they do not."""
    spans: list[tuple[int, int]] = []
    if any(column.dtype.kind != "i" for column in columns):
        return None
    room = 2 * len(columns[0])
    for column in columns:
        low, high = bounds(column)
        spans.append((low, high - low + 1))
        room //= spans[-1][1]
    if not room:
        return None
    code: Int64Array | None = None
    for column, (low, span) in zip(columns, spans, strict=True):
        if span > 1:
            own = np.subtract(column, low, dtype=np.int64)
            code = own if code is None else np.add(np.multiply(code, span, out=code), own, out=code)
    return np.zeros(len(columns[0]), np.int64) if code is None else code, spans


def pick(values: npt.NDArray[Scalar], rows: npt.NDArray[Any], missing: int) -> npt.NDArray[Scalar]:
    """``values[rows]``, with ``missing`` where a row is negative: there is none. Shape of ``rows``."""
    if len(values) == 0:
        return np.full(len(rows), missing, values.dtype)
    if len(rows) and _is_told_even(rows):
        return np.full(len(rows), values[rows[0]] if rows[0] >= 0 else missing, values.dtype)
    if values.dtype.kind in "ib" and rows.dtype.kind == "i":
        result, whole, asked = (
            np.empty(len(rows), values.dtype),
            np.ascontiguousarray(values),
            np.ascontiguousarray(rows),
        )
        columns = (whole, values.itemsize, len(values), asked, rows.itemsize, len(rows))
        if run("boundby_pick", *columns, missing, result) < 0:
            raise IndexError("a row lies behind the last")
        return result
    picked: npt.NDArray[Scalar] = values[np.maximum(rows, 0)]
    picked[rows < 0] = missing
    return picked


def blank(values: Int64Array, where: BoolArray, *, at_most: bool = False) -> Int64Array:
    """The values, but 0 in these places; ``at_most``: what is negative stays."""
    blanked = np.empty(len(values), np.int64)
    run("boundby_blank", int64(values), np.ascontiguousarray(where), len(values), at_most, blanked)
    return blanked


def is_any(column: npt.NDArray[Any], values: Iterable[int]) -> BoolArray:
    """``np.isin`` for few values, of which there is a pass for each."""
    matches = np.zeros(len(column), bool)
    for value in values:
        matches |= column == value
    return matches


def is_in(column: npt.NDArray[Any], values: Iterable[int]) -> BoolArray:
    """``np.isin`` for integers, without masked arrays."""
    wanted = unique(np.asarray(values if isinstance(values, np.ndarray) else [*values], np.int64))
    if len(wanted) <= DENSE:
        return is_any(column, wanted.tolist())
    is_wanted: BoolArray = wanted[np.minimum(places(wanted, column), len(wanted) - 1)] == column
    return is_wanted


def places(
    values: npt.NDArray[Any], wanted: npt.NDArray[Any], side: Literal["left", "right"] = "left"
) -> npt.NDArray[np.intp]:
    """``np.searchsorted`` for integers: many times faster where neighbours ask for places near each other."""
    if values.dtype.kind not in "ib" or wanted.dtype.kind not in "ib":
        return np.searchsorted(values, wanted, side=side)
    positions = np.empty(len(wanted), np.int64)
    run("boundby_places", int64(values), len(values), int64(wanted), len(wanted), side == "right", positions)
    return positions


_BLOCK = 1 << 9


def largest(values: npt.NDArray[Any], most: int, ties: npt.NDArray[Any] | None = None) -> npt.NDArray[np.intp]:
    """Where the largest values stand, largest first, of equals those with the least of ``ties``, else the first: so
    many at most."""
    rows = np.arange(len(values))
    if (blocks := len(values) // _BLOCK) > most:  # the largest of some blocks are as many that are no smaller
        most_of = values[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
        rows = np.flatnonzero(values >= np.partition(most_of, blocks - most)[blocks - most])
    if len(rows) > most:
        among = values[rows]
        rows = rows[among >= np.partition(among, len(rows) - most)[len(rows) - most]]
    return rows[np.lexsort((rows if ties is None else ties[rows], -values[rows]))][:most]


def as_rows(chosen: BoolArray) -> slice | npt.NDArray[np.intp]:
    """The chosen rows: a slice, which copies nothing, where they follow one another."""
    count = int(np.count_nonzero(chosen))
    first = int(chosen.argmax()) if count else 0
    return slice(first, first + count) if bool(chosen[first : first + count].all()) else np.flatnonzero(chosen)


def as_slice(rows: npt.NDArray[Any]) -> slice | npt.NDArray[Any]:
    """Rows, as a slice where each is the one after the one before it."""
    first, last = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
    return slice(first, last) if last - first == len(rows) and order_of(rows) == 2 else rows


def ascend(keys: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether no row comes before the one before it, by the first key, of equals by the next."""
    if keys and keys[0].dtype.kind in "ib":
        order = order_of(keys[0])
        if order != 1 or len(keys) == 1:
            return order > 0
    is_after: BoolArray | None = None
    keys = [key for key in keys if not is_even(key)]
    if not keys or bool((keys[0][1:] > keys[0][:-1]).all()):
        return True
    for key in reversed(keys):
        same = key[1:] >= key[:-1] if is_after is None else (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & is_after)
        is_after = same
    return is_after is None or bool(is_after.all())


def order_of(values: npt.NDArray[Any]) -> int:
    """2 where each integer lies above the one before it, 1 where none lies below it, else 0."""
    if len(values) and _is_told_even(values):
        return 2 - (len(values) > 1)
    return run("boundby_order", keys := integers(values), keys.itemsize, len(values))


def running_maximum(values: Int64Array) -> Int64Array:
    """The greatest value so far, at each; the values themselves where they ascend."""
    return values if order_of(values) else np.maximum.accumulate(values)


def marked(rows: npt.NDArray[Any], size: int) -> BoolArray:
    """Which of so many rows are among some; negative ones are none."""
    is_seen = np.zeros(size + 1, bool)  # the first is for those
    if run("boundby_seen", numbers := integers(rows), numbers.itemsize, len(rows), -1, size + 1, is_seen) < 0:
        raise IndexError("a row lies outside")
    return is_seen[1:]


def in_order(*keys: npt.NDArray[Any]) -> slice | npt.NDArray[np.intp]:
    """``np.lexsort``, the first key first; where rows are in that order already all of them, which copies nothing."""
    return slice(None) if ascend(keys) else np.lexsort(keys[::-1])


def offsets(group: npt.NDArray[Any], groups: int) -> Int64Array:
    """Where each group begins in a column that is in order of groups, and where the last one ends."""
    at = np.zeros(groups + 1, np.int64)
    if len(group):
        np.cumsum(group_counts(group, groups), out=at[1:])
    return at


def rows_of(column: npt.NDArray[Any], value: int) -> slice:
    """The rows that hold a value, in a column that is sorted."""
    wanted = column.dtype.type(value)  # one of another type would make NumPy copy the column
    return slice(int(column.searchsorted(wanted, "left")), int(column.searchsorted(wanted, "right")))


def queue_depth(launch: npt.NDArray[np.int64], start: npt.NDArray[np.int64]) -> Int64Array:
    """For each operation, how many launched before it (itself excluded) had not started when it was launched."""
    launches, starts = (column if ascend([column]) else np.sort(column) for column in (launch, start))
    depth: Int64Array = np.empty(len(launch), np.int64)
    run("boundby_queued", int64(launches), int64(starts), len(launches), int64(launch), len(launch), depth)
    return depth


def room_for_blocks(count: int) -> Int64Array:
    """Where passes keep the sum and the greatest of every 16 of so many values, of every 16 of those, and so on."""
    return np.empty(2 * (count // 15 + 17), np.int64)


def range_maximum(values: Int64Array, first: npt.NDArray[np.intp], stop: npt.NDArray[np.intp]) -> Int64Array:
    """Maximum of ``values[first:stop]`` for each pair, 0 where that is empty. O(n log n)."""
    greatest, room = np.empty(len(first), np.int64), room_for_blocks(len(values))
    slices = int64(first), int64(stop), len(first)
    if run("boundby_greatest", int64(values), len(values), *slices, room, greatest) < 0:
        raise IndexError("a slice lies outside of the values")
    return greatest


def order_statistics(
    values: Int64Array, first: npt.NDArray[np.intp], stop: npt.NDArray[np.intp], ranks: npt.NDArray[np.intp]
) -> Int64Array:
    """Of each ``values[first:stop]`` those of the given ranks, shape (slices, ranks); of slices that nest, inner ones
    come first. Reorders the values."""
    ranked_values: Int64Array = np.empty(ranks.shape, np.int64)
    wanted = int64(first), int64(stop), len(first), int64(ranks), ranks.shape[1]
    if run("boundby_ranks", values, len(values), *wanted, ranked_values) < 0:
        raise IndexError("a slice or rank lies outside of the values")
    return ranked_values


def into_groups(
    group: npt.NDArray[Any], values: npt.NDArray[np.integer], count: Int64Array, begins: Int64Array | None = None
) -> Int64Array:
    """Values in the order of their groups; ``count``: how many each group has, ``begins``: where each of them goes, if
    they stand in another order than that of their numbers."""
    grouped_values = np.empty(len(values), np.int64)
    goes = np.cumsum(count) - count if begins is None else begins.astype(np.int64)
    keys = integers(group)
    if run("boundby_group", keys, keys.itemsize, int64(values), len(values), goes, len(count), grouped_values) < 0:
        raise IndexError("a value is of no group")
    return grouped_values


def group_sums(
    group: npt.NDArray[Any], value: npt.NDArray[Any], groups: int, since: Int64Array | None = None
) -> Int64Array:
    """The integer values of each group summed, shape (groups,); how far they lie beyond other values, if given."""
    total: Int64Array = np.zeros(groups, np.int64)
    if len(group) and _is_told_even(group) and 0 <= group[0] < groups:
        total[group[0]] = value.sum(dtype=np.int64) - (0 if since is None else since.sum(dtype=np.int64))
    else:
        columns = (keys := integers(group)), keys.itemsize, int64(value), 0 if since is None else int64(since)
        if run("boundby_sums", *columns, len(group), groups, total) < 0:
            raise IndexError("a value is of no group")
    return total


def group_counts(group: npt.NDArray[Any], groups: int) -> Int64Array:
    """How many rows each group has, shape (groups,)."""
    total: Int64Array = np.zeros(groups, np.int64)
    if len(group) and _is_told_even(group) and 0 <= group[0] < groups:
        total[group[0]] = len(group)
    elif run("boundby_sums", keys := integers(group), keys.itemsize, 0, 0, len(group), groups, total) < 0:
        raise IndexError("a value is of no group")
    return total


# Where groups and values make no more cells than this for each row, a table of all of them takes the place of sorting.


class Tally(Struct, frozen=True):
    """Of each pair of a group and a label that there is, in ascending order."""

    group: Int64Array
    label: Int64Array
    rows: Int64Array  # how many
    ns: Int64Array  # from their starts to their ends

    def by_group(self, groups: int, which: BoolArray | slice = slice(None)) -> tuple[Int64Array, Int64Array]:
        """How many rows each group has, and their time; ``which``: only of these pairs."""
        return (
            group_sums(self.group[which], self.rows[which], groups),
            group_sums(self.group[which], self.ns[which], groups),
        )

    def prevailing(self, otherwise: npt.NDArray[Any]) -> Int64Array:
        """Of each group the label that holds most time, of equals the smallest; ``otherwise``: of one without rows."""
        most, order = otherwise.astype(np.int64), np.lexsort((-self.label, self.ns))
        most[self.group[order]] = self.label[order]  # the last write wins
        return most


def tally(group: npt.NDArray[Any], label: npt.NDArray[Any], start: Int64Array | None, end: npt.NDArray[Any]) -> Tally:
    """Rows counted, and the time that they take, by group and label. Without ``start``, ``end`` is that time."""
    if len(group) == 0:
        return Tally(*(np.empty(0, np.int64) for _ in range(4)))
    (low, high), (least, most) = bounds(group), bounds(label)
    groups, labels = high - low + 1, most - least + 1
    if groups * labels > DENSE * len(group):
        pairs, of_row = factorize(group, label)
        counts = group_counts(of_row, len(pairs))
        ns = end if start is None else end - start
        return Tally(pairs[:, 0], pairs[:, 1], counts, group_sums(of_row, ns, len(pairs)))
    sides = integers(group), integers(label)
    sums = np.zeros((groups * labels, 2), np.int64)
    columns = (sides[0], sides[0].itemsize, low, groups, sides[1], sides[1].itemsize, least, labels)
    if run("boundby_tally", *columns, 0 if start is None else int64(start), int64(end), len(group), sums) < 0:
        raise IndexError("a row is of no group")
    cells = np.flatnonzero(sums[:, 0])
    return Tally(cells // labels + low, cells % labels + least, *sums[cells].T)


class Looked(Struct, frozen=True, eq=False):
    """A column that takes no memory of its own; it is indexed like one."""

    table: npt.NDArray[np.integer]  # the last is what stands where a row has no number
    number: npt.NDArray[np.integer]  # of each row: its place in the table, or -1

    @overload
    def __getitem__(self, rows: int) -> int: ...
    @overload
    def __getitem__(self, rows: slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> npt.NDArray[Any]: ...
    def __getitem__(self, rows: int | slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> int | npt.NDArray[Any]:
        return int(self.table[self.number[rows]]) if isinstance(rows, int) else self.of(self.number[rows])

    def of(self, number: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
        """What rows of these numbers hold."""
        return pick(self.table, number, int(self.table[-1]))
