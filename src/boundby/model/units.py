"""Numbers as people read them. Times come in as nanoseconds and leave with three significant digits."""

from __future__ import annotations

import math

from boundby.model.scale import HARDLY

NOT_CAPTURED = "not captured"
LINE = 100  # characters, where nobody says how many there are
LONGEST_TOLD = LINE  # of a name in a sentence
US, MS, S = 1_000, 1_000_000, 1_000_000_000  # in nanoseconds
PERCENT = 100
FURTHEST_NS = 1 << 62  # no trace has an instant beyond (as Unix time 2116), and two of them differ by what 64 bits hold
EXACT_NS = 1 << 53  # whole numbers below are exact as floating point numbers: 104 days

# Each unit is used up to the value at which three digits would round to 1000 of it.
_TIME = ((1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"), (60_000_000_000, "min"), (3_600_000_000_000, "h"))
_BYTES = ((1_000, "kB"), (1_000_000, "MB"), (1_000_000_000, "GB"), (1_000_000_000_000, "TB"))
_COUNT = ((1_000, "k"), (1_000_000, "M"), (1_000_000_000, "G"))


def told_name(name: str) -> str:
    """A name in a sentence: of one that holds JSON or templates both ends, which tell it apart."""
    half = LONGEST_TOLD // 2
    return name if len(name) <= LONGEST_TOLD else f"{name[: half - 3]}...{name[-half:]}"


def quoted(name: str) -> str:
    """A name in a sentence, in quotes where it would read as words of it: ``"data copy in *"``."""
    return f'"{name}"' if " " in name else name


def place(path: tuple[str, ...]) -> str:
    """A region in a sentence: ``step/forward``, the innermost two parts of its path."""
    return quoted("/".join(map(told_name, path[-2:])))


def is_placed(text: str, path: tuple[str, ...]) -> bool:
    """Whether a sentence names a region itself, or one inside it."""
    return bool(path) and (place(path) in text or f'"{"/".join(map(told_name, path[-2:]))}/' in text)


def duration(ns: float | None) -> str:
    """``812 ns``, ``53.2 ms``, ``5.43 s``; ``0 ns`` is a measured zero and ``None`` was not captured."""
    if ns is None:
        return NOT_CAPTURED
    if ns < 0:
        return f"-{duration(-ns)}"
    if 0 < ns < 0.5:
        return "<1 ns"
    return _scaled(ns, "ns", _TIME)


def duration_range(low_ns: int, high_ns: int) -> str:
    """``1.10-1.30 s``, ``0.46-4.30 ms``: in one unit, one figure where both read the same, ``up to 4.30 ms`` where
    the low end is nothing beside the high one."""
    low, high = duration(low_ns), duration(high_ns)
    if low == high:
        return high
    low_number, _, low_unit = low.partition(" ")
    high_number, _, high_unit = high.partition(" ")
    if low_unit != high_unit:  # with as many decimals as the high end
        decimals = len(high_number.partition(".")[2])
        low_number = f"{low_ns * float(high_number) / high_ns:.{decimals}f}"
    if low_number == high_number:
        return high
    return f"{low_number}-{high}" if low_number.strip("0.") else f"up to {high}"


def instant(ns: int, of_ns: int) -> str:
    """``1.387s``: seconds on the trace's own clock, as ``--window`` takes them, so exact that nothing that could be
    seen in a span of ``of_ns`` is lost."""
    digits = max(3, math.ceil(-math.log10(max(HARDLY * of_ns, 1) / S)))
    return f"{ns / S:.{digits}f}s"


def is_nothing_beside(low: float, high: float) -> bool:
    """Whether the low end of a range is less than the last of the three digits that its high end is told with."""
    return low * 1000 < high or low == high == 0


def size(byte_count: float | None) -> str:
    """``812 B``, ``1.54 GB``: powers of ten, as bandwidth is."""
    return NOT_CAPTURED if byte_count is None else _scaled(byte_count, "B", _BYTES)


def bandwidth(bytes_per_s: float | None) -> str:
    """``12.3 GB/s``."""
    return NOT_CAPTURED if bytes_per_s is None else f"{size(bytes_per_s)}/s"


def rate(per_ms: float | None) -> str:
    """``13.2 /ms``."""
    if per_ms is None:
        return NOT_CAPTURED
    if 0 < per_ms < 0.01:
        return "<0.01 /ms"
    return f"{_three_digits(per_ms) if per_ms < 999.5 else count(round(per_ms))} /ms"


def count(number: int | None) -> str:
    """``812``, ``9.3k``, ``931k``, ``1.2M``."""
    if number is None:
        return NOT_CAPTURED
    if number < 1_000:
        return str(number)
    scale, unit = _fitting(number, _COUNT)
    value = number / scale
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def percent(fraction: float | None, digits: int = 0) -> str:
    """A share: ``24 %``; ``24.3 %`` with a digit. What is not nothing never reads ``0 %``, what is not all never
    ``100 %``."""
    if fraction is None:
        return NOT_CAPTURED
    if not fraction:
        return "0 %"
    if fraction < 0:
        return f"-{percent(-fraction, digits)}"
    least = 10**-digits
    if 100 * fraction <= least / 2:  # half a percent would round to the even 0
        return f"<{least:g} %"
    if 100 - least / 2 <= 100 * fraction < 100:
        return f">{100 - least:g} %"
    return f"{100 * fraction:.{digits}f} %"


def percent_range(low: float, high: float) -> str:
    """Two shares as ``percent`` tells them: ``24-30 %``, one figure where both read the same, ``up to 1 %`` where the
    low one is less than that of which it tells."""
    ends = percent(low), percent(high)
    if ends[0] == ends[1]:
        return ends[1]
    return f"up to {ends[1]}" if ends[0].startswith("<") else f"{ends[0].removesuffix(' %')}-{ends[1]}"


def change(fraction: float) -> str:
    """A change by a part of what was: ``-24 %``, and with a tenth where it is small (``+5.3 %``) or where all but a
    little is gone (``-99.9 %``). From ten times on how many times as much it is: ``20,104 times``."""
    if not fraction:
        return "0 %"
    if 1 + fraction >= 10:
        return f"{1 + fraction:,.0f} times"
    size, sign = abs(fraction), "-" if fraction < 0 else "+"
    if size < 0.0005:
        return "<0.1 %"
    if 0.995 <= size < 1:
        return f"{sign}{min(100 * size, 99.9):.1f} %"
    return f"{sign}{100 * size:.1f} %" if size < 0.0995 else f"{sign}{100 * size:,.0f} %"


def plural(number: int, one: str, many: str = "") -> str:
    """``1 copy``, ``2 copies``, ``1,200 regions``: ``many`` where it is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def counted(number: int, one: str, many: str) -> str:
    """``1 kernel runs``, ``1.2k kernels run``: as `plural`, short, with the words that agree."""
    return f"{count(number)} {one if number == 1 else many}"


def _scaled(value: float, base: str, units: tuple[tuple[int, str], ...]) -> str:
    if value < 999.5:
        return f"{round(value)} {base}"
    scale, unit = _fitting(value, units)
    return f"{_three_digits(value / scale)} {unit}"


def _fitting(value: float, units: tuple[tuple[int, str], ...]) -> tuple[int, str]:
    """The smallest unit in which three digits do."""
    return next((pair for pair in units if value / pair[0] < 999.5), units[-1])


def _three_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
