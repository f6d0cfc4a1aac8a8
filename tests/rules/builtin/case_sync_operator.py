"""A loss that asks for sizes, and the same without."""

from __future__ import annotations

import random

from boundby.simulate.nsys_export import Capture
from boundby.simulate.patterns import STORIES
from tests.rules.builtin.harness import RuleCases, Source, as_torch


def story(name: str, capture: Capture | None = None) -> Source:
    return Source(STORIES[name].make(random.Random(0), 12), capture=capture or Capture())


def before() -> Source:
    return story("segmentation_before")


def after() -> Source:
    return story("segmentation_after")


def without_operators() -> Source:
    return as_torch(story("segmentation_before", capture=Capture(nvtx=False)))


CASES = RuleCases(positive=before, negative=after, missing=without_operators, also=("cuda-graphs",))
