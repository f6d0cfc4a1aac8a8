"""What holds for every job, whatever it is made of."""

from __future__ import annotations

from benchmarks.simulated.jobs import US
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boundby.document.job_document import JobLook, document, told
from boundby.jobs.merge import broken
from boundby.render import to_terminal
from tests.jobs.made import Job, Plant, report

_PLANTS = st.one_of(
    st.builds(Plant, st.sampled_from(["slow_device", "slow_input"]), st.integers(0, 1), st.floats(0.01, 3)),
    st.builds(Plant, st.sampled_from(["uneven_batch", "host_pauses"]), st.none(), st.floats(0.01, 1)),
    st.builds(Plant, st.just("sequence_lengths"), st.none(), st.floats(0.01, 0.8)),
)
_JOBS = st.builds(
    Job,
    data=st.sampled_from([2, 4]),
    tensor=st.sampled_from([1, 2]),
    pipeline=st.sampled_from([1, 2, 3]),
    steps=st.sampled_from([1, 2, 3, 5]),
    layers=st.integers(1, 2),
    micro=st.integers(1, 4),
    chunks=st.sampled_from([1, 2]),
    experts=st.sampled_from([1, 2]),
    gradients=st.sampled_from([1, 2]),
    kernel_ns=st.integers(5, 500).map(lambda us: us * US),
    jitter=st.floats(0, 0.3),
    embedding=st.booleans(),
    beside=st.booleans(),
    graphs=st.booleans(),
    early_ns=st.sampled_from([0, 8 * US]),
    late=st.sampled_from([0.0, 0.5]),
    log_ns=st.sampled_from([0, 5_000 * US]),
    host_size=st.sampled_from([1, 2]),
    plants=st.lists(_PLANTS, max_size=2).map(tuple),
    seed=st.integers(0, 1 << 30),
).filter(lambda job: job.steps >= 3 or not job.late)


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(_JOBS, st.booleans())
def test_laws_hold(job: Job, tells_groups: bool) -> None:
    found = report(job, tells_groups=tells_groups)
    assert list(broken(found)) == []
    assert all(0 < one.saving_ns <= found.length_ns for one in found.stragglers)
    sentences = [told(found, one) for one in (*found.stragglers, *found.extras)]
    assert found.steps > 1 or not any("from step to step" in one for one in sentences)
    assert "nan" not in to_terminal.render(document(found, JobLook(full=True)))
