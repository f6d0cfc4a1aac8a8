"""Which region of the earlier report is which of the later one.

Both become trees in which numbered names are folded, whatever folding the reports were made with. From the root
inwards: first what has the same name under the same parent, then, of what is left there, what is alike by name and by
what lies in it. What moved to another parent is found last, by its name and what lies in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property

from msgspec import Struct, field

from boundby.model.causes import CAUSE_KEYS
from boundby.model.scale import MOST
from boundby.results.comparison import Account
from boundby.results.report import RegionReport, Report, Verdict
from boundby.structure.steps import Candidate, find_steps
from boundby.trace.vocabulary.ranges import fold_name

Path = tuple[str, ...]


class Part(Struct, eq=False, dict=True):
    """A region, or those that share its folded path; with the parts that lie in it, in the report's order."""

    path: Path
    domain: str
    members: list[RegionReport] = field(default_factory=list)
    children: list[Part] = field(default_factory=list)

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
        found: list[int] = []
        for member in self.members:
            found += member.instance_ns.host_ns if kind == "host" else member.instance_ns.projected_ns
        return tuple(found)

    def walk(self) -> Iterator[Part]:
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


def tree(report: Report) -> Part:
    """The root, which holds all others. A parent that the report left out (``--min-share``) stands there empty."""
    root = Part((), "")
    known: dict[tuple[str, Path], Part] = {("", ()): root}
    for region in report.regions:
        path = tuple(fold_name(name) for name in region.path)
        _place(known, root, path, region.domain).members.append(region)
    return root


def _place(known: dict[tuple[str, Path], Part], root: Part, path: Path, domain: str) -> Part:
    if not path:
        return root
    part = known.get((domain, path))
    if part is None:
        part = Part(path, domain)
        known[domain, path] = part
        _parent(known, root, path, domain).children.append(part)
    return part


def _parent(known: dict[tuple[str, Path], Part], root: Part, path: Path, domain: str) -> Part:
    """Ranges nest across domains, so the parent may be of another one."""
    above = path[:-1]
    if not above:
        return root
    same = known.get((domain, above))
    others = [part for (_, other), part in known.items() if other == above] if same is None else []
    return same or (others[-1] if others else _place(known, root, above, domain))


def steps_of(parts: Sequence[Part], whole: Part) -> Part | None:
    """What is plainly the step of the program that ``whole`` is the root of."""
    steps = find_steps([part.candidate for part in parts], whole.candidate)
    return None if steps is None else parts[steps]


#: Below this two parts are different. Chosen so that ``fwd`` and ``forward`` with the same parts inside match, and
#: so do names with a common word at the same place, but not two leaves that share nothing but their place.
ALIKE = 0.6
#: What moved must be surer: the place does not speak for it.
ALIKE_ELSEWHERE = MOST
OTHER_DOMAIN = 0.97  # the same name in another domain is nearly the same region
MAX_PAIRS = 10_000  # of siblings to compare: where hundreds are new, likeness of names says little and takes long
_WORDS = re.compile(r"[A-Za-z][a-z]*|\d+|\*")


class Match(Struct, frozen=True):
    """A pair, or a part that only one report has. ``score`` is 1 where nothing was renamed on the way."""

    before: Part | None
    after: Part | None
    how: str
    score: float


def match(before: Part, after: Part) -> list[Match]:
    """All parts of both trees, each in one match: in the later tree's order, what is gone last."""
    found: dict[int, tuple[Part, float]] = {}  # id of the later part: (earlier part, score)
    _match_children(before, after, 1.0, found)
    _match_moved(before, after, found)
    taken = {id(part) for part, _ in found.values()}
    result = [Match(before, after, "path", 1.0)]
    for part in after.walk():
        if part is after:
            continue
        pair = found.get(id(part))
        if pair is None:
            result.append(Match(None, part, "", 0.0))
        else:
            same = pair[0].path == part.path and pair[0].domain == part.domain
            result.append(Match(pair[0], part, "path" if same else "similar", pair[1]))
    gone = [part for part in before.walk() if part is not before and id(part) not in taken]
    return result + [Match(part, None, "", 0.0) for part in gone]


def _match_children(before: Part, after: Part, score: float, found: dict[int, tuple[Part, float]]) -> None:
    """Pair the children of a pair, and so on inwards."""
    left = list(before.children)
    right: list[Part] = []
    pairs: list[tuple[Part, Part, float]] = []
    by_name = {(part.domain, part.label): part for part in left}
    for part in after.children:
        same = by_name.pop((part.domain, part.label), None)
        if same is None:
            right.append(part)
        else:
            left.remove(same)
            pairs.append((same, part, 1.0))
    pairs += _alike(left, right, ALIKE)
    for one, other, likeness in pairs:
        found[id(other)] = (one, min(score, likeness))
        _match_children(one, other, min(score, likeness), found)


def _match_moved(before: Part, after: Part, found: dict[int, tuple[Part, float]]) -> None:
    """Parts under another parent: a level was put around them, or taken away."""
    taken = {id(part) for part, _ in found.values()}
    left: dict[str, list[Part]] = {}
    right: dict[str, list[Part]] = {}
    for part in before.walk():
        if part is not before and id(part) not in taken:
            left.setdefault(part.label, []).append(part)
    for part in after.walk():
        if part is not after and id(part) not in found and part.label in left:
            right.setdefault(part.label, []).append(part)
    pairs = [pair for label, others in right.items() for pair in _alike(left[label], others, ALIKE_ELSEWHERE)]
    # Outermost first, so that what lies in a moved part moves with it.
    for one, other, likeness in sorted(pairs, key=lambda pair: (len(pair[1].path), pair[1].path)):
        if id(other) not in found and id(one) not in taken:
            found[id(other)] = (one, likeness)
            taken.add(id(one))
            _match_free_children(one, other, likeness, found, taken)


def _match_free_children(
    one: Part, other: Part, score: float, found: dict[int, tuple[Part, float]], taken: set[int]
) -> None:
    names = {(part.domain, part.label): part for part in one.children if id(part) not in taken}
    for part in other.children:
        same = names.get((part.domain, part.label))
        if same is not None and id(part) not in found:
            found[id(part)] = (same, score)
            taken.add(id(same))
            _match_free_children(same, part, score, found, taken)


def _alike(left: list[Part], right: list[Part], least: float) -> list[tuple[Part, Part, float]]:
    """The best pairs first, each part once."""
    if len(left) * len(right) > MAX_PAIRS:
        return []
    scored = [(likeness(one, other), i, j) for i, one in enumerate(left) for j, other in enumerate(right)]
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


def likeness(one: Part, other: Part) -> float:
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
