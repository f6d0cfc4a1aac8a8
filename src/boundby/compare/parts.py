"""A report's regions as a tree to match: numbered names folded, whatever folding the report was made with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from boundby.model.causes import CAUSE_KEYS
from boundby.results.comparison import Account
from boundby.results.report import RegionReport, Report, Verdict
from boundby.structure.steps import find_steps
from boundby.trace.vocabulary.ranges import fold_name

Path = tuple[str, ...]


@dataclass(eq=False)
class Part:
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


def steps_of(parts: Sequence[Part]) -> Part | None:
    """What looks like the steps of the program, by host time."""
    steps = find_steps((len(part.path), part.instances, part.host_ns) for part in parts)
    return None if steps is None else parts[steps]
