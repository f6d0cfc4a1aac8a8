"""Which region of the earlier report is which of the later one.

Both become trees in which numbered names are folded, whatever folding the reports were made with. From the root
inwards: first what has the same name under the same parent, then, of what is left there, what is alike by name and by
what lies in it. What moved to another parent is found last, by its name and what lies in it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from boundby.model.causes import CAUSE_KEYS, Cause
from boundby.model.scale import CROWD, MOST, NEARLY_ALL, QUARTER
from boundby.results.comparison import Account, FindingChange, RegionChange
from boundby.results.report import Finding, RegionReport, Report, Verdict
from boundby.structure.steps import Candidate, find_steps
from boundby.trace.vocabulary.range_names import fold_name

Path = tuple[str, ...]


class TreePart(Struct, eq=False, dict=True):
    """A region, or those that share its folded path; with the parts that lie in it, in the report's order."""

    path: Path
    domain: str
    members: list[RegionReport] = field(default_factory=list)
    children: list[TreePart] = field(default_factory=list)

    @property
    def label(self) -> str:
        return self.path[-1] if self.path else ""

    @property
    def instances(self) -> int:
        return sum(member.instances for member in self.members)

    @property
    def total_ns(self) -> int:
        return sum(member.total_ns for member in self.members)

    @property
    def host_ns(self) -> int:
        return sum(member.host.total_ns for member in self.members)

    @property
    def candidate(self) -> Candidate:
        return step_candidate(self.path, self.members)

    @property
    def verdict(self) -> Verdict:
        """That of the member which takes most."""
        if not self.members:
            return Verdict("unknown", "low")
        return max(self.members, key=lambda member: (member.total_ns, member.host.total_ns)).verdict

    @cached_property
    def inside(self) -> frozenset[str]:
        """The names of all that lies in it."""
        return frozenset(below.label for child in self.children for below in child.walk())

    def account(self) -> Account:
        time = {key: sum(member.time.get(key, 0) for member in self.members) for key in CAUSE_KEYS}
        return Account(
            name=self.label,
            path=self.path,
            instances=self.instances,
            total_ns=self.total_ns,
            time=time,
            host_ns=self.host_ns,
            sync_count=sum(member.sync.count for member in self.members),
            verdict=self.verdict,
        )

    def series(self, kind: str) -> tuple[int, ...]:
        """Instance durations, ``host`` or ``projected``. Of several members: one after the other."""
        values: list[int] = []
        for member in self.members:
            values += member.instance_ns.host_ns if kind == "host" else member.instance_ns.projected_ns
        return tuple(values)

    def walk(self) -> Iterator[TreePart]:
        """Itself and all that lies in it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


def step_candidate(path: Path, regions: Sequence[RegionReport]) -> Candidate:
    """Regions of one path, as `find_steps` looks at them. Results that tell no launches have their operations."""
    work = [
        region.coverage.launches or region.kernels.count + sum(copies.count for copies in region.memcpy.values())
        for region in regions
    ]
    return Candidate(
        path, sum(region.instances for region in regions), sum(region.host.total_ns for region in regions), sum(work)
    )


def tree(report: Report) -> TreePart:
    """The root, which holds all others. A parent that the report left out (``--min-share``) stands there empty."""
    root = TreePart((), "")
    parts: dict[tuple[str, Path], TreePart] = {("", ()): root}
    for region in report.regions:
        path = tuple(fold_name(name) for name in region.path)
        _place(parts, root, path, region.domain).members.append(region)
    return root


def _place(known: dict[tuple[str, Path], TreePart], root: TreePart, path: Path, domain: str) -> TreePart:
    if not path:
        return root
    part = known.get((domain, path))
    if part is None:
        part = TreePart(path, domain)
        known[domain, path] = part
        _parent(known, root, path, domain).children.append(part)
    return part


def _parent(known: dict[tuple[str, Path], TreePart], root: TreePart, path: Path, domain: str) -> TreePart:
    """Ranges nest across domains, so the parent may be of another one."""
    above = path[:-1]
    if not above:
        return root
    same = known.get((domain, above))
    others = [part for (_, other), part in known.items() if other == above] if same is None else []
    return same or (others[-1] if others else _place(known, root, above, domain))


def steps_of(parts: Sequence[TreePart], whole: TreePart) -> TreePart | None:
    """What is plainly the step of the program that ``whole`` is the root of."""
    steps = find_steps([part.candidate for part in parts], whole.candidate)
    return None if steps is None else parts[steps]


#: Below this two parts are different. Chosen so that ``fwd`` and ``forward`` with the same parts inside match, and
#: so do names with a common word at the same place, but not two leaves that share nothing but their place.
ALIKE = 0.6
#: What moved must be surer: the place does not speak for it.
ALIKE_ELSEWHERE = MOST
OTHER_DOMAIN = NEARLY_ALL  # the same name in another domain is nearly the same region
MAX_PAIRS = CROWD  # of siblings to compare: where hundreds are new, likeness of names says little and takes long
_WORDS = re.compile(r"[A-Za-z][a-z]*|\d+|\*")


class RegionMatch(Struct, frozen=True):
    """A pair, or a part that only one report has. ``score`` is 1 where nothing was renamed on the way."""

    before: TreePart | None
    after: TreePart | None
    how: str
    score: float


def match(before: TreePart, after: TreePart) -> list[RegionMatch]:
    """All parts of both trees, each in one match: in the later tree's order, what is gone last."""
    pairs_found: dict[int, tuple[TreePart, float]] = {}  # id of the later part: (earlier part, score)
    _match_children(before, after, 1.0, pairs_found)
    _match_moved(before, after, pairs_found)
    taken = {id(part) for part, _ in pairs_found.values()}
    result = [RegionMatch(before, after, "path", 1.0)]
    for part in after.walk():
        if part is after:
            continue
        pair = pairs_found.get(id(part))
        if pair is None:
            result.append(RegionMatch(None, part, "", 0.0))
        else:
            same = pair[0].path == part.path and pair[0].domain == part.domain
            result.append(RegionMatch(pair[0], part, "path" if same else "similar", pair[1]))
    gone = [part for part in before.walk() if part is not before and id(part) not in taken]
    return result + [RegionMatch(part, None, "", 0.0) for part in gone]


def _match_children(before: TreePart, after: TreePart, score: float, found: dict[int, tuple[TreePart, float]]) -> None:
    """Pair the children of a pair, and so on inwards."""
    left = list(before.children)
    right: list[TreePart] = []
    pairs: list[tuple[TreePart, TreePart, float]] = []
    by_name = {(part.domain, part.label): part for part in left}
    for part in after.children:
        same = by_name.pop((part.domain, part.label), None)
        if same is None:
            right.append(part)
        else:
            left.remove(same)
            pairs.append((same, part, 1.0))
    pairs += _alike(left, right, ALIKE)
    for earlier, later, likeness in pairs:
        found[id(later)] = (earlier, min(score, likeness))
        _match_children(earlier, later, min(score, likeness), found)


def _match_moved(before: TreePart, after: TreePart, found: dict[int, tuple[TreePart, float]]) -> None:
    """Parts under another parent: a level was put around them, or taken away."""
    taken = {id(part) for part, _ in found.values()}
    left: dict[str, list[TreePart]] = {}
    right: dict[str, list[TreePart]] = {}
    for part in before.walk():
        if part is not before and id(part) not in taken:
            left.setdefault(part.label, []).append(part)
    for part in after.walk():
        if part is not after and id(part) not in found and part.label in left:
            right.setdefault(part.label, []).append(part)
    pairs = [pair for label, others in right.items() for pair in _alike(left[label], others, ALIKE_ELSEWHERE)]
    # Outermost first, so that what lies in a moved part moves with it.
    for earlier, later, likeness in sorted(pairs, key=lambda pair: (len(pair[1].path), pair[1].path)):
        if id(later) not in found and id(earlier) not in taken:
            found[id(later)] = (earlier, likeness)
            taken.add(id(earlier))
            _match_free_children(earlier, later, likeness, found, taken)


def _match_free_children(
    one: TreePart, other: TreePart, score: float, found: dict[int, tuple[TreePart, float]], taken: set[int]
) -> None:
    names = {(part.domain, part.label): part for part in one.children if id(part) not in taken}
    for part in other.children:
        same = names.get((part.domain, part.label))
        if same is not None and id(part) not in found:
            found[id(part)] = (same, score)
            taken.add(id(same))
            _match_free_children(same, part, score, found, taken)


def _alike(left: list[TreePart], right: list[TreePart], least: float) -> list[tuple[TreePart, TreePart, float]]:
    """The best pairs first, each part once."""
    if len(left) * len(right) > MAX_PAIRS:
        return []
    scored = [(likeness(left_part, other), i, j) for i, left_part in enumerate(left) for j, other in enumerate(right)]
    pairs = []
    used_left: set[int] = set()
    used_right: set[int] = set()
    for score, i, j in sorted(scored, key=lambda item: (-item[0], item[1], item[2])):
        if score < least:
            break
        if i not in used_left and j not in used_right:
            used_left.add(i)
            used_right.add(j)
            pairs.append((left[i], right[j], score))
    return pairs


def likeness(one: TreePart, other: TreePart) -> float:
    """0 to 1: by name, by the names of what lies inside, and by how often they run.

    Where neither holds anything, the name must carry more.
    """
    if one.label != other.label and "::" in one.label and "::" in other.label:
        return 0.0  # operators have fixed names: another name is another operator
    domain = 1.0 if one.domain == other.domain else OTHER_DOMAIN
    name = _name_likeness(one.label, other.label)
    counts = sorted((one.instances, other.instances))
    often = counts[0] / counts[1] if counts[1] else 0.0
    inner, outer = one.inside, other.inside
    if not inner and not outer:
        return domain * (0.85 * name + 0.15 * often)
    shared = len(inner & outer) / len(inner | outer)
    return domain * (0.5 * name + 0.4 * shared + 0.1 * often)


def _name_likeness(one: str, other: str) -> float:
    """By letters or by words (``forward_pass``, ``Forward pass``; ``loss``, ``compute_loss``), whichever is more."""
    if one == other:
        return 1.0
    first, second = one.lower(), other.lower()
    letters = SequenceMatcher(None, first, second, autojunk=False).ratio()
    words, others = (({word.lower() for word in _WORDS.findall(name)} - {"*"}) for name in (one, other))
    common = len(words & others) / min(len(words), len(others)) if words and others else 0.0
    extra = len(words & others) / len(words | others) if words | others else 0.0
    return max(letters, 0.5 * common + 0.5 * extra)


# What became of findings: matched by rule and place, then by places around each other, then by rule alone where the
# place itself is new.

#: A finding of a place that only the later run has is taken for one of the earlier run only if it promises no more
#: than so many times as much: what grew is told as new.
SAME_AT_MOST = 1 + QUARTER
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*(?: (?:ns|us|ms|s)\b)?")


def finding_changes(before: Report, after: Report, regions: Sequence[RegionChange]) -> list[FindingChange]:
    """Findings of both reports: new, resolved, remaining ones and those that could not be checked, each most severe
    first."""
    renamed = {item.before.path: item for item in regions if item.before is not None}
    paths = {item.after.path for item in regions if item.after is not None and item.before is not None}
    pairs, left = _in_same_place(before, after, renamed)
    left = _in_places_around(before, pairs, left, renamed)
    moved, left = _in_new_places(before, pairs, left, paths)
    unchecked = {item.rule for item in after.not_checked}
    ended = [
        FindingChange(status="unchecked", finding=finding, saving_before_ns=finding.saving_ns)
        if finding.rule in unchecked
        else _resolved(before, after, finding, _region_of(finding, renamed))
        for _, finding in _gone(before, pairs)
    ]
    stayed = [change for number, change in sorted(pairs.items()) if not any(change is other for other in moved)]
    now = {item.after.path: item for item in regions if item.after is not None}
    result = [
        FindingChange(
            status="new",
            finding=item,
            saving_after_ns=item.saving_ns,
            is_cost_alike=_was_as_costly(before, after, item, now),
        )
        for item in left
    ]
    result += [*_shared(ended), *stayed, *moved]
    order = {"new": 0, "resolved": 1, "remains": 2, "unchecked": 3}
    return sorted(result, key=lambda item: order[item.status])


_Pairs = dict[int, FindingChange]  # by row among the earlier findings: what became of it


def _gone(before: Report, pairs: _Pairs) -> list[tuple[int, Finding]]:
    """Earlier findings of which no later one is known, with their rows."""
    return [(number, item) for number, item in enumerate(before.findings) if number not in pairs]


def _in_same_place(before: Report, after: Report, renamed: Mapping[Path, RegionChange]) -> tuple[_Pairs, list[Finding]]:
    """Findings of one rule in one region, and the later ones that are left."""
    by_place: dict[tuple[str, Path | None], list[Finding]] = defaultdict(list)
    for finding in after.findings:
        by_place[finding.rule, _folded(finding.region)].append(finding)
    pairs: _Pairs = {}
    for is_said in (True, False):  # those that say the same find each other before the others take what is left
        for number, finding in _gone(before, pairs):
            change = _region_of(finding, renamed)
            path = change.after.path if change is not None and change.after is not None else _folded(finding.region)
            later = by_place.get((finding.rule, path), [])
            chosen = _same(finding, later) if is_said else 0 if later else None
            if chosen is not None:
                pairs[number] = _remains(finding, later.pop(chosen), _times(change))
    left = [
        item
        for item in after.findings
        if any(item is other for findings_here in by_place.values() for other in findings_here)
    ]
    return pairs, left


def _in_places_around(
    before: Report, pairs: _Pairs, left: list[Finding], renamed: Mapping[Path, RegionChange]
) -> list[Finding]:
    """Fills ``pairs`` with those told of a place around the other's, as most of it lies there now: it is one matter all
    the same. Returns what is left."""
    for now in left:
        around = [
            (n, candidate)
            for n, candidate in _gone(before, pairs)
            if candidate.rule == now.rule and _is_nested(candidate, now)
        ]
        if not around:
            continue
        number, earlier = around[_same(now, [item for _, item in around]) or 0]
        became = _remains(earlier, now, _times(_region_of(earlier, renamed)))
        parts = [part for part in left if part.rule == now.rule and _is_nested(earlier, part)]
        if became.trend == "improved" and not _is_less(earlier, parts):  # it was told in parts now
            became = replace(became, trend=None)
        pairs[number] = became
    return [item for item in left if not any(item is change.finding for change in pairs.values())]


def _in_new_places(
    before: Report, pairs: _Pairs, left: list[Finding], known: Collection[Path]
) -> tuple[list[FindingChange], list[Finding]]:
    """What moved to regions that there were not, which fills ``pairs``, and what is left."""
    moved: list[FindingChange] = []
    gone = _gone(before, pairs)
    for now in [item for item in left if _folded(item.region) not in known]:
        was = next((pair for pair in gone if pair[1].rule == now.rule and _promises_no_more(now, pair[1])), None)
        if was is not None:
            # Of several that one has become none can be held against it: no trend.
            moved.append(_kept(was[1], now))
            pairs.setdefault(was[0], moved[-1])
            left = [item for item in left if item is not now]
    return moved, left


def _region_of(finding: Finding, regions: Mapping[Path, RegionChange]) -> RegionChange | None:
    path = _folded(finding.region)
    return regions.get(path) if path is not None else None


def _folded(path: Path | None) -> Path | None:
    return None if path is None else tuple(fold_name(name) for name in path)


def _is_nested(one: Finding, other: Finding) -> bool:
    """Whether one's place lies in the other's; everything lies in none."""
    outer, inner = sorted((_folded(one.region) or (), _folded(other.region) or ()), key=len)
    return inner[: len(outer)] == outer


def _is_less(was: Finding, parts: Sequence[Finding]) -> bool:
    """Whether all of these together would save less than that by a quarter or more, as far as that is told."""
    now_ns = sum(part.saving_ns[1] for part in parts if part.saving_ns)
    return was.saving_ns is None or SAME_AT_MOST * now_ns < was.saving_ns[1]


def _same(finding: Finding, later: Sequence[Finding]) -> int | None:
    """Of several of one rule in one place, the one that says the same with other figures."""
    said = _FIGURE.sub("#", finding.title)
    return next((number for number, item in enumerate(later) if _FIGURE.sub("#", item.title) == said), None)


def _promises_no_more(now: Finding, was: Finding) -> bool:
    if now.saving_ns is None or was.saving_ns is None:
        return now.saving_ns is None and was.saving_ns is None
    return now.saving_ns[1] <= SAME_AT_MOST * was.saving_ns[1]


def _remains(was: Finding, now: Finding, times: float) -> FindingChange:
    """``times``: the place ran so many times as often before; costs are compared for as many runs."""
    costs = _costs(was, now)
    trend, is_cost_alike = None, False
    if costs is not None and costs[0] > 0:
        ratio = costs[1] * times / costs[0]
        evidence = _evidence(was, now)
        if evidence is not None and evidence[0] > 0 and ratio > 1:  # what it costs is as before: only others went
            cost = max(evidence[1] * times / evidence[0], 1.0)
            is_cost_alike = cost <= SAME_AT_MOST < ratio
            ratio = min(ratio, cost)
        trend = "improved" if ratio < 1 / SAME_AT_MOST else "worse" if ratio > SAME_AT_MOST else None
    return _kept(was, now, trend, is_cost_alike)


def _kept(was: Finding, now: Finding, trend: str | None = None, is_cost_alike: bool = False) -> FindingChange:
    return FindingChange(
        status="remains",
        finding=now,
        saving_before_ns=was.saving_ns,
        saving_after_ns=now.saving_ns,
        title_before=was.title,
        region_before=was.region,
        trend=trend,
        is_cost_alike=is_cost_alike,
    )


def _costs(was: Finding, now: Finding) -> tuple[float, float] | None:
    """What it could save at most, then and now; where that is not told, the longest time that both have as evidence."""
    if was.severity == now.severity == "note":
        return None
    if was.saving_ns and now.saving_ns:
        return was.saving_ns[1], now.saving_ns[1]
    return _evidence(was, now)


def _evidence(was: Finding, now: Finding) -> tuple[float, float] | None:
    """The longest time that both have as evidence."""
    times = {
        key: (float(value), float(later))
        for key, value in was.evidence.items()
        if key.endswith("_ns")
        and isinstance(value, int | float)
        and isinstance(later := now.evidence.get(key), int | float)
    }
    return max(times.values(), default=None)


def _around(finding: Finding, now: Mapping[Path, RegionChange]) -> RegionChange | None:
    """The finding's region, else the next one around it, that the earlier run has, too."""
    path = _folded(finding.region) or ()
    around = (now.get(path[:size]) for size in range(len(path), 0, -1))
    return next((item for item in around if item is not None and item.before is not None), None)


def _was_as_costly(before: Report, after: Report, finding: Finding, now: Mapping[Path, RegionChange]) -> bool:
    """Whether a new finding's cause took about as long before in its place (else in the place around it that both
    runs have, else in all windows): it is seen now since other time is gone. Where there is none of that cause, all
    time of the region is what counts."""
    if isinstance(startup_ns := finding.evidence.get("startup_ns"), int):  # no part of a window
        was_ns = max((device.startup_ns for device in before.devices), default=0)
        return startup_ns <= SAME_AT_MOST * was_ns
    change, cause = _around(finding, now), _rule_cause(finding.rule)
    if cause is None and change is None:
        return False  # a fact of the run as a whole, which its windows do not tell
    spent = _spent(before, after, change, None if cause is None else cause.key)
    if change is not None and spent is not None and not any(spent):
        spent = _spent(before, after, change)
    return spent is not None and 0 < max(spent) <= SAME_AT_MOST * min(spent)


def _resolved(before: Report, after: Report, finding: Finding, change: RegionChange | None) -> FindingChange:
    gone = change is not None and bool(change.path) and change.after is None
    resolved = FindingChange(
        status="resolved", finding=finding, saving_before_ns=finding.saving_ns, is_region_gone=gone
    )
    if gone or (finding.region and change is None):
        return resolved
    cause = _cause(finding.rule)
    return replace(
        resolved,
        measured_ns=_shortened(before, after, change),
        cause=cause,
        cause_ns=_shortened(before, after, change, cause) if cause else None,
    )


def _cause(rule_id: str) -> str | None:
    """The cause that the rule's remedy takes away: what its region has less of it is to its credit. None for rules
    that change several, such as those on waits, whose cost is the idle time after them, and for rules that are not
    installed here: they are told with their region's whole time."""
    cause = _rule_cause(rule_id)
    return None if cause in (None, Cause.SYNC) else cause.key


def _rule_cause(rule_id: str) -> Cause | None:
    from boundby.rules.builtin import every  # all of them, for findings that are gone or new only

    return next((rule.cause for rule in every() if rule.id == rule_id), None)


def _shortened(before: Report, after: Report, change: RegionChange | None, cause: str | None = None) -> int | None:
    """By how much the region's account (or all windows), or one cause of it, became shorter, for as many instances
    as before."""
    spent = _spent(before, after, change, cause)
    return None if spent is None else spent[0] - spent[1]


def _spent(
    before: Report, after: Report, change: RegionChange | None, cause: str | None = None
) -> tuple[int, int] | None:
    """The time of the region's account (or of all windows), or of one cause of it, before and after, for as many
    instances as before."""
    if change is None or not change.path:
        earlier_ns, later_ns = (
            sum(device.time.get(cause, 0) if cause else device.window_ns for device in report.devices)
            for report in (before, after)
        )
        return (earlier_ns, later_ns) if before.devices else None
    earlier, later = change.before, change.after
    if earlier is None:
        return None
    each = 0.0 if later is None else later.each_of(cause) if cause else later.each_ns
    return (earlier.time.get(cause, 0) if cause else earlier.total_ns), round(each * earlier.instances)


def _shared(ended: Sequence[FindingChange]) -> list[FindingChange]:
    """With how many resolved findings share one measurement: none of them may take all the credit."""
    keys = [(_folded(item.finding.region), item.cause) for item in ended]
    measured = [
        key for key, item in zip(keys, ended, strict=True) if item.status == "resolved" and item.measured_ns is not None
    ]
    count = [sum(_is_one_time(key, other) for other in measured) for key in keys]
    return [replace(item, together=max(many, 1)) for many, item in zip(count, ended, strict=True)]


def _is_one_time(one: tuple[Path | None, str | None], other: tuple[Path | None, str | None]) -> bool:
    """Whether the time of one cause (all time where there is none) in one place is a part of the other."""
    return one[0] == other[0] and (one[1] == other[1] or None in (one[1], other[1]))


def _times(change: RegionChange | None) -> float:
    """How many times as often a place ran before."""
    earlier, later = (change.before, change.after) if change is not None else (None, None)
    return earlier.instances / later.instances if earlier and later and earlier.instances and later.instances else 1.0
